"""A run: what one agent does for one request, from the first call to one of its endings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Literal, Self

from amends.actions import Action
from amends.errors import DeskUnreachable, NoRun, Stopped
from amends.events import cut
from amends.link import Link
from amends.protocol.vocabulary import EventType
from amends.record import Record
from amends.values import UNSET, Target, as_targets, per_target

_current: ContextVar[Run | None] = ContextVar("amends_run", default=None)

EffectClass = Literal[
    "read_only", "draft", "internal_update", "external_reversible", "external_irreversible"
]
Retry = Literal["model", "tool", "workflow", "human"]


def current_run() -> Run:
    """The run that this code runs in. Raises NoRun outside any."""
    run = _current.get()
    if run is None:
        raise NoRun("open a run first: with desk.run(...)")
    return run


class Run(Record):
    """Use it with `with`: completed at the end, failed by an exception, cancelled by `cancel`.

    `directive` is what the desk wants of a resumed run, `state` what its checkpoint held.
    """

    def __init__(
        self,
        desk: Link,
        run: str,
        *,
        told: Mapping[str, Any],
        trace: dict[str, Any] | None = None,
        directive: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(desk, run, trace=trace, directive=directive)
        self.state: Any = (directive or {}).get("state")
        self.summary = ""
        self.ended = False
        self._told = told
        self._outer: Token[Run | None] | None = None

    def start(self) -> Self:
        """Say that the run begins, or that it goes on. `with` does it for you."""
        if self.directive is None:
            self.say(EventType.RUN_STARTED, dict(self._told), n=0)
        else:
            said = {"directive": self.directive.get("id"), "from": self.directive.get("from")}
            self.say(EventType.RUN_RESUMED, said, n=self.next_n())
        return self

    def action(
        self,
        tool: str,
        *,
        target: Target | Sequence[Target] | None = None,
        args: Mapping[str, Any] | None = None,
        before: Any = UNSET,
        effect_class: EffectClass = "external_reversible",
        op: str | None = None,
        key: str | None = None,
        undo: Mapping[str, Any] | None = None,
        saga: Literal["pivot", "retriable"] | None = None,
        risk: Literal["low", "medium", "high", "critical"] | None = None,
        intent: Mapping[str, Any] | None = None,
        retry: Retry | None = None,
        wait_seconds: float | None = None,
    ) -> Action:
        """One call of a tool, to be used with `with`.

        `before` is the target as it was (None: it was not there; a list for several targets).
        `op` names the logical operation where one tool does several on one target in one run.
        `undo` is `amends.undo(...)` or `amends.no_undo(...)`. `wait_seconds` bounds the wait for an
        approval.
        """
        self._must_be_open()
        targets = as_targets(target)
        snapshots = UNSET if before is UNSET else per_target(before, len(targets))
        optional = {"saga": saga, "risk": risk, "intent": intent, "compensation": undo,
                    "retry": retry or ("workflow" if self.directive else None)}  # fmt: skip
        given = {name: value for name, value in optional.items() if value is not None}
        return Action(
            self, tool, key=key, targets=targets, args=args or {}, before=snapshots,
            op=op or tool,
            wait_seconds=self.desk.wait_seconds if wait_seconds is None else wait_seconds,
            **{"class": effect_class}, **given,
        )  # fmt: skip

    def checkpoint(
        self,
        name: str,
        *,
        state: Any = None,
        completed: Sequence[str] = (),
        pending: Sequence[str] = (),
        summary: str = "",
        instructions: str = "",
        recovery_mode: str | None = None,
    ) -> None:
        """Mark a safe place to pause and to come back to. Raises Stopped if the desk wants a stop.

        `state` is what the run needs to go on from here without asking a model where it was.
        """
        self._must_be_open()
        said = {"name": name, "state": state, "completed": list(completed),
                "pending": list(pending), "summary": summary, "instructions": instructions,
                "recovery_mode": recovery_mode}  # fmt: skip
        given = {key: value for key, value in said.items() if value not in (None, "", [])}
        told = self.build(EventType.RUN_CHECKPOINT, given, n=self.next_n())
        if told.blobs:
            told.data["state_ref"] = told.data.pop("state")["ref"]
        self.desk.send(told)
        self.heed()

    def heed(self) -> None:
        """Ask what the desk wants of this run. Raises Stopped; does nothing if it is away."""
        try:
            directive = self.desk.directive(self.id)
        except DeskUnreachable:
            return
        if directive and directive.get("kind") == "stop":
            raise Stopped(str(directive.get("reason") or "no reason is given"))

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

    def complete(self, summary: str = "") -> None:
        """End the run well. `with` does it for you, with `run.summary`."""
        self._end(EventType.RUN_COMPLETED, {"summary": summary or self.summary})

    def fail(self, error: BaseException, *, failed_action: str | None = None) -> None:
        """End the run as failed. `with` does it for you."""
        said: dict[str, Any] = {"error": {"type": type(error).__name__, "message": cut(str(error))}}
        action = failed_action or self.failed_action or self.last_action
        if action:
            said["failed_action"] = action
        self._end(EventType.RUN_FAILED, said)

    def cancel(self, *, by: str, reason: str = "") -> None:
        """End the run because somebody wants it to end; no further call is made in it."""
        self._end(EventType.RUN_CANCELLED, {"by": by, "reason": reason})

    def report(self, text: str) -> int:
        """Say that this run did wrong, ended or not, so that people look at it; the case's number.

        What is still to be sent goes first. Raises DeskUnreachable where the desk is away.
        """
        return self.desk.report(self.id, text)

    def __enter__(self) -> Self:
        self.start()
        self._outer = _current.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._outer is not None:
            _current.reset(self._outer)
        if self.ended:
            return
        if error is None:
            self.complete()
        elif isinstance(error, Stopped):
            self.cancel(by="the desk", reason=error.reason)
        elif isinstance(error, Exception):
            self.fail(error)
        else:
            self.cancel(by="the process", reason=type(error).__name__)

    def _end(self, kind: str, said: dict[str, Any]) -> None:
        self._must_be_open()
        self.ended = True
        self.say(kind, {name: value for name, value in said.items() if value}, n=self.next_n())

    def _must_be_open(self) -> None:
        if self.ended:
            raise NoRun(f"the run {self.id} has ended")
