"""A run: what one agent does for one request, from the first call to one of its endings."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from contextvars import ContextVar, Token
from typing import Any, Literal, Self

from amends.actions import Action
from amends.drivers import DrivenContext, Pause, Steps, awaits, blocking, waits
from amends.errors import AmendsError, DeskUnreachable, NoRun, Stopped
from amends.events import cut
from amends.link import Link
from amends.protocol.vocabulary import EffectClass, EventType
from amends.record import Record
from amends.values import UNSET, Target, as_targets, per_target

_current: ContextVar[Run | None] = ContextVar("amends_run", default=None)

Retry = Literal["model", "tool", "workflow", "human"]
NO_REASON = "no reason is given"
OUTSIDE = (
    "open a run first: with desk.run(...). A thread that you start knows of no run that is open:"
    " let it call contextvars.copy_context().run(...), with a copy made where the run is open"
)


def current_run() -> Run:
    """The run that this code runs in. Raises NoRun outside any."""
    run = _current.get()
    if run is None:
        raise NoRun(OUTSIDE)
    return run


class Run(Record, DrivenContext):
    """Use it with `with`, or with `async with` and the methods that begin with `a`: completed at
    the end, failed by an exception, cancelled by `cancel` or as its task is.

    `directive` is what the desk wants of a resumed run, `state` what its checkpoint held; both are
    known once it is entered.
    """

    def __init__(
        self,
        desk: Link,
        run: str,
        *,
        told: Mapping[str, Any] | None,
        trace: dict[str, Any] | None = None,
        directive_seconds: float = 0,
    ) -> None:
        """`told` is what is said as the run begins; None for one that is resumed.

        `directive_seconds` is how long a resumed one waits for what the desk wants of it.
        """
        super().__init__(desk, run, trace=trace)
        self.state: Any = None
        self.summary = ""
        self._told, self._directive_seconds = told, directive_seconds
        self._outer: Token[Run | None] | None = None

    def starting(self) -> Steps[Self]:
        """Say that the run begins, or that it goes on. `with` does it for you.

        Of a run that is resumed it raises Stopped where the desk wants it to stop, and AmendsError
        where it wants nothing of it.
        """
        self.process = os.getpid()
        yield from blocking(self.desk.freshen)
        if self._told is not None:
            told = {"agent": self.desk.agent, **self._told}
            said = {name: value for name, value in told.items() if value}
            yield from self._opening(EventType.RUN_STARTED, said, n=0)
            return self
        waited = self._directive_seconds
        directive = yield from self.desk.asking_directive(self.id, wait_seconds=waited)
        if directive is None:
            raise AmendsError(f"the desk wants nothing of {self.id}")
        if directive.get("kind") != "resume":
            raise Stopped(str(directive.get("reason") or NO_REASON))
        self.directive, self.state = directive, directive.get("state")
        said = {"directive": directive.get("id"), "from": directive.get("from")}
        yield from self._opening(EventType.RUN_RESUMED, said)
        return self

    start, astart = waits(starting), awaits(starting)

    def _opening(self, kind: str, said: dict[str, Any], *, n: int | None = None) -> Steps[None]:
        """Say so; what is cancelled meanwhile is told as over, for nobody is in it who would."""
        try:
            yield from self.saying(kind, said, n=n)
            yield Pause(0)  # a task that was cancelled meanwhile hears of it here
        except (Exception, GeneratorExit):
            raise
        except BaseException as error:
            yield from self.leaving(error)
            raise

    def action(
        self,
        tool: str,
        *,
        target: Target | Sequence[Target] | None = None,
        args: Mapping[str, Any] | None = None,
        before: Any = UNSET,
        effect_class: EffectClass | None = None,
        op: str | None = None,
        key: str | None = None,
        undo: Mapping[str, Any] | None = None,
        saga: Literal["pivot", "retriable"] | None = None,
        risk: Literal["low", "medium", "high", "critical"] | None = None,
        intent: Mapping[str, Any] | None = None,
        retry: Retry | None = None,
        wait_seconds: float | None = None,
        time_limit_seconds: float | None = None,
        accepts_changed_arguments: bool = False,
        schema: Mapping[str, Any] | None = None,
    ) -> Action:
        """One call of a tool, to be used with `with` or `async with`.

        `before` is the target as it was (None: it was not there; a list for several targets).
        Without an `effect_class` the one that the workspace's catalogue has of the tool counts.
        `op` names the logical operation where one tool does several on one target in one run.
        `undo` is `amends.undo(...)` or `amends.no_undo(...)`. `wait_seconds` bounds the wait for an
        approval, `time_limit_seconds` the call that `perform` makes: after it the outcome is
        unknown, and the call may still happen. With `accepts_changed_arguments` an approver may
        correct arguments, and the call is made with those that `Action.args` then gives. `schema`
        is the JSON Schema of the tool's arguments: the desk hears it once, and of each change.
        """
        self._must_be_open()
        targets = as_targets(target)
        snapshots = UNSET if before is UNSET else per_target(before, len(targets))
        if not isinstance(undo, Mapping | None):
            raise TypeError(
                'undo is amends.undo("connection.operation", ...) or amends.no_undo(why)'
            )
        optional = {"saga": saga, "risk": risk, "intent": intent, "compensation": undo,
                    "retry": retry or ("workflow" if self.directive else None)}  # fmt: skip
        given = {name: value for name, value in optional.items() if value is not None}
        return Action(
            self, tool, key=key, targets=targets, args={} if args is None else args,
            before=snapshots, op=op or tool, time_limit_seconds=time_limit_seconds,
            wait_seconds=self.desk.wait_seconds if wait_seconds is None else wait_seconds,
            accepts_changed_arguments=accepts_changed_arguments, schema=schema,
            **{"class": effect_class}, **given,
        )  # fmt: skip

    def explaining(self, /, tool: str, **planned: Any) -> Steps[dict[str, Any]]:
        """What the desk would answer to such a call now, and under `explain` why: the rule, each
        condition with what it came to, the grants that do not cover it. The arguments are those of
        `action`; nothing is begun, and nobody is asked.
        """
        with self.desk.spool.needed():
            return (yield from self.action(tool, **planned).explaining())

    explain, aexplain = waits(explaining), awaits(explaining)

    def checkpointing(
        self,
        name: str,
        *,
        state: Any = None,
        completed: Sequence[str] = (),
        pending: Sequence[str] = (),
        summary: str = "",
        instructions: str = "",
        recovery_mode: str | None = None,
    ) -> Steps[None]:
        """Mark a safe place to pause and to come back to. Raises Stopped if the desk wants a stop.

        `state` is what the run needs to go on from here without asking a model where it was.
        """
        self._must_be_open()
        said = {"name": name, "state": state, "completed": list(completed),
                "pending": list(pending), "summary": summary, "instructions": instructions,
                "recovery_mode": recovery_mode}  # fmt: skip
        given = {key: value for key, value in said.items() if value not in (None, "", [])}
        yield from blocking(self._send_checkpoint, given)
        yield from self.heeding()

    checkpoint, acheckpoint = waits(checkpointing), awaits(checkpointing)

    def _send_checkpoint(self, given: dict[str, Any]) -> None:
        told = self.build(EventType.RUN_CHECKPOINT, given, n=self.next_n())
        if told.blobs:
            told.data["state_ref"] = told.data.pop("state")["ref"]
        self.desk.send(told)

    def heeding(self) -> Steps[None]:
        """Ask what the desk wants of this run. Raises Stopped; does nothing if it is away."""
        try:
            directive = yield from self.desk.asking_directive(self.id)
        except DeskUnreachable:
            return
        if directive and directive.get("kind") == "stop":
            raise Stopped(str(directive.get("reason") or NO_REASON))

    heed, aheed = waits(heeding), awaits(heeding)

    def is_done(self, tool: str, *, target: Target | None = None) -> bool:
        """In a resumed run: whether the desk says that this call is done and to be skipped."""
        steps = (self.directive or {}).get("steps") or []
        wanted = as_targets(target)
        return any(
            step.get("tool") == tool
            and step.get("label") == "skip"
            and (target is None or step.get("targets") == wanted)
            for step in steps
        )

    def completing(self, summary: str = "") -> Steps[None]:
        """End the run well. `with` does it for you, with `run.summary`."""
        yield from self.ending(EventType.RUN_COMPLETED, {"summary": summary or self.summary})

    complete, acomplete = waits(completing), awaits(completing)

    def failing(self, error: BaseException, *, failed_action: str | None = None) -> Steps[None]:
        """End the run as failed. `with` does it for you.

        A call is named where you name one, or where it failed, was refused, or is unknown.
        """
        said: dict[str, Any] = {"error": {"type": type(error).__name__, "message": cut(str(error))}}
        action = failed_action or self.failed_action or self.last_action
        if action:
            said["failed_action"] = action
        yield from self.ending(EventType.RUN_FAILED, said)

    fail, afail = waits(failing), awaits(failing)

    def cancelling(self, *, by: str, reason: str = "") -> Steps[None]:
        """End the run because somebody wants it to end; no further call is made in it."""
        yield from self.ending(EventType.RUN_CANCELLED, {"by": by, "reason": reason})

    cancel, acancel = waits(cancelling), awaits(cancelling)

    def reporting(self, text: str) -> Steps[int]:
        """Say that this run did wrong, ended or not, so that people look at it; the case's number.

        What is still to be sent goes first. Raises DeskUnreachable where the desk is away.
        """
        return (yield from self.desk.reporting(self.id, text))

    report, areport = waits(reporting), awaits(reporting)

    def __enter__(self) -> Self:
        self.start()
        self._outer = _current.set(self)
        return self

    async def __aenter__(self) -> Self:
        await self.astart()
        self._outer = _current.set(self)
        return self

    def leaving(self, error: BaseException | None) -> Steps[None]:
        if self._outer is not None:
            with contextlib.suppress(ValueError):  # entered in another task than this one
                _current.reset(self._outer)
        if self.ended:
            return
        if error is None:
            yield from self.completing()
        elif stopped := _stopped(error):
            yield from self.cancelling(by="the desk", reason=stopped.reason)
        elif isinstance(error, Exception):
            yield from self.failing(error)
        else:
            yield from self.cancelling(by="the process", reason=type(error).__name__)

    def ending(self, kind: str, said: dict[str, Any]) -> Steps[None]:
        self._must_be_open()
        self.ended = True
        yield from self.saying(kind, {name: value for name, value in said.items() if value})

    def _must_be_open(self) -> None:
        if self.ended:
            raise NoRun(f"the run {self.id} has ended")


def _stopped(error: BaseException) -> Stopped | None:
    """The desk's word to stop, also where a framework has wrapped it in an error of its own, or a
    task group in one of several.
    """
    seen, left = set[int](), [error]
    while left:
        one = left.pop()
        if isinstance(one, Stopped):
            return one
        if id(one) in seen:  # an error may be its own cause
            continue
        seen.add(id(one))
        left += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        left += [one.__cause__] if one.__cause__ else ()
    return None
