"""An action: one call of one tool, announced before and recorded after."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self, TypeVar

from amends.changed_arguments import with_own_secrets
from amends.drivers import DrivenContext, Steps, awaits, blocking, called, heard, refuse_lazy, waits
from amends.errors import (
    AmendsError,
    ArgumentsChanged,
    Compensated,
    InDoubt,
    MissingOutcome,
    NoEffect,
    Refused,
    SpoolFull,
    TooLarge,
    moment,
)
from amends.events import cut, new_id
from amends.gate import MASKED_KEY, Approval, BeginRequest, Begun, Waits
from amends.policy import catalogued_class, is_gated, is_pivot, keeps_order
from amends.protocol.canonical import idempotency_key
from amends.protocol.masking import Unfit, holds_bare, holds_mask
from amends.protocol.vocabulary import UNCATALOGUED, WITHOUT_EFFECT, ActionClass, EventType
from amends.record import Record, must_be_words, shape_of
from amends.spool import KeyRow, KeyState
from amends.values import (
    UNSET,
    as_targets,
    as_text,
    asked_for,
    check_of,
    digest_of,
    is_json,
    per_target,
    plain,
)

log = logging.getLogger("amends")

Outcome = Literal["no_effect", "unknown"]
Answer = TypeVar("Answer")
ENDED = "the run ended before the call was made"
RECORDED = "the outcome of this call is recorded already"
MADE = "this call was made: another one is an action of its own, with an `op` of its own"
CHANGED = "the arguments were changed while the desk was asked: the call is not made"
NOT_TAKEN = (
    "an approver changed the arguments, and this call takes none but its own (see"
    " `accepts_changed_arguments`): it is not made"
)
NOT_USED = (
    "an approver changed the arguments, and the call would be made with others: it is not made."
    " Give `**act.args` to `perform`, and nothing else by name"
)


class Action(DrivenContext):
    """Use it with `with`: it asks the desk on entering, and an exception inside is a failure. With
    `async with` the methods that begin with `a` are awaited.

    `replayed` is true if this call was made before: then `result` is what it answered, and the body
    should do nothing. `perform` keeps that rule by itself. `args` are the arguments to make the
    call with: those that were given, or what an approver has made of them. `on_wait`, if it is set
    before the call begins, hears of its approvals in the place of the desk's.
    """

    on_wait: Waits | None = None
    approval: Approval | None = None
    """The yes that let it proceed; None where nobody was asked."""

    def __init__(
        self,
        run: Record,
        tool: str,
        *,
        key: str | None,
        wait_seconds: float,
        time_limit_seconds: float | None,
        accepts_changed_arguments: bool,
        schema: Mapping[str, Any] | None,
        **planned: Any,
    ) -> None:
        self.run, self.tool = run, tool
        self.driver, self.async_driver = run.driver, run.async_driver
        self.targets: list[dict[str, str]] = planned["targets"]
        self._class: str | None = planned["class"]
        self.effect_class: str = self._class or UNCATALOGUED
        self._planned = {name: value for name, value in planned.items() if value is not UNSET}
        # People may take an hour to decide, and the agent goes on working with what it gave us.
        self._given, self._planned["args"] = planned["args"], asked_for(planned["args"])
        # What is no JSON (a date, a Decimal) could not be given back as what it was.
        if accepts_changed_arguments and is_json(self._given):
            self._planned["accepts_changed_arguments"] = True
        self._key, self._shape = key, shape_of(schema)
        self._wait_seconds, self._time_limit_seconds = wait_seconds, time_limit_seconds
        self._retry: str | None = self._planned.pop("retry", None)
        self._row: KeyRow | None = None
        self._begins_anew()

    @property
    def row(self) -> KeyRow:
        """What is known of the call: its key, id, number, attempt and state."""
        if self._row is None:
            raise AmendsError("this action has not begun")
        return self._row

    @property
    def id(self) -> str:
        return self.row.action

    @property
    def args(self) -> Mapping[str, Any]:
        given: Mapping[str, Any] = self._given if self._changed is UNSET else self._changed
        return given

    @property
    def is_changed(self) -> bool:
        """Whether an approver has changed the arguments."""
        return self._changed is not UNSET

    @property
    def replayed(self) -> bool:
        return self.row.state == "succeeded" and not self.settled

    @property
    def result(self) -> Any:
        """What the call answered, in its masked form."""
        return self.row.result

    def _begins_anew(self) -> None:
        """Nothing was made or said yet; also where the same object is entered a second time."""
        self._changed: Any = UNSET
        self._approved = ""
        self.settled = False
        self.process = os.getpid()
        self.goes_on()
        self._is_given = False

    def goes_on(self) -> None:
        """The call is not over: what is made next is a part of it, such as an answer to it."""
        self._began = moment()
        self._returned: Any = UNSET
        self._once, self._is_given = threading.Lock(), True

    def beginning(self) -> Steps[Self]:
        """Ask whether the call may be made. Raises as `amends.gate.Gate.begin` does; SpoolFull."""
        try:
            with self.run.desk.spool.needed():
                return (yield from self._asking())
        except AmendsError as error:
            error.told, error.passed = moment(), False
            raise

    def explaining(self) -> Steps[dict[str, Any]]:
        """What the desk would answer now, and under `explain` why; it begins nothing."""
        key = yield from self._preparing()
        return (yield from self.run.desk.gate.explaining((yield from blocking(self._ask, key))))

    def _preparing(self) -> Steps[str]:
        """The key of the call, whose class is known then."""
        yield from self.run.desk.meeting()
        known = catalogued_class(self.run.desk.policy, self.tool)
        self.effect_class = self._planned["class"] = self._class or known or str(UNCATALOGUED)
        return self._key or (yield from blocking(self._own_key))

    def _asking(self) -> Steps[Self]:
        key = yield from self._preparing()
        self.run.last_action = None
        for _ in range(2):
            ask = yield from blocking(self._ask, key)
            self.run.last_action = str(ask.planned.event["action"])
            try:
                begun = yield from self._gate(ask)
                self._row, arguments, self.approval, unkept, self._lease = begun
                self._begins_anew()
                if self._shape is not None:
                    self.run.desk.announced[self.tool] = self._shape[0]
            except Compensated as undone:
                if not self.run.repeats(key):
                    raise
                key = undone.next_key  # The desk has told this run to do it anew.
            else:
                self.run.last_action = self._row.action
                if self._row.state == "succeeded":
                    self.run.went_well(self._row.action)
                if self._row.state == "running":
                    try:
                        self._heed(ask, arguments, unkept)
                    except (NoEffect, SpoolFull, InDoubt) as unmade:
                        yield from self.failing(unmade, outcome="no_effect")
                        raise
                return self
        raise AmendsError("the desk has undone this call twice while it was asked for")

    begin, abegin = waits(beginning), awaits(beginning)

    def perform(self, call: Callable[..., Answer], /, *args: Any, **kwargs: Any) -> Answer:
        """Make the call, unless it was made before: then give its first (masked) result.

        If nothing else is said before the body ends, what it returns is recorded as the result.
        Where an approver has changed the arguments it takes these, `**act.args`, and no others by
        name: else it raises ArgumentsChanged and makes no call. TimeoutError where it takes longer
        than `time_limit_seconds`.
        """
        answer: Answer = self.driver.run(self.performing(call, *args, **kwargs))
        return answer

    async def aperform(
        self,
        call: Callable[..., Awaitable[Answer]] | Callable[..., Answer],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> Answer:
        """The same, awaited. What is not a coroutine function is called in a thread."""
        answer: Answer = await self.async_driver.run(self.performing(call, *args, **kwargs))
        return answer

    def performing(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Steps[Any]:
        if not self.replayed and self.is_changed and as_text(plain(kwargs)) != self._approved:
            raise ArgumentsChanged(NOT_USED)
        return (yield from self.making(partial(call, *args, **kwargs)))

    def making(self, call: Callable[[], Any]) -> Steps[Any]:
        """Make the call, which has its arguments already: for whoever took them from `args`."""
        if self.replayed:
            return self.result
        if self.run.ended:
            raise NoEffect(ENDED)
        if self.settled:
            raise AmendsError(RECORDED)
        if self._has_changed():
            raise ArgumentsChanged(CHANGED)
        self.must_be_ours()
        refuse_lazy(call)
        if (lease := self._lease) and lease.is_over and not self._once.locked():
            yield from self._renewing(lease.ask)
            return (yield from self.making(call))  # much may have happened meanwhile
        if not self._once.acquire(blocking=False):
            raise InDoubt(self.id) if self._returned is UNSET else AmendsError(MADE)
        try:
            self._returned = yield from called(call, limit_seconds=self._time_limit_seconds)
        except NoEffect as refusal:
            if refusal.told < self._began:  # else another action, within this call, said it
                self._once.release()
            raise
        return self._returned

    def _renewing(self, ask: BeginRequest) -> Steps[None]:
        try:
            yield from heard(self._renewed(ask))
        except (asyncio.CancelledError, KeyboardInterrupt):
            if not (self._is_given or self._once.locked() or self.settled):
                yield from self.failing("cancelled before the call was made", outcome="no_effect")
            raise

    def _renewed(self, ask: BeginRequest) -> Steps[None]:
        self._row, *_, self._lease = yield from self.run.desk.gate.renewed(ask, self.row)

    def succeeding(
        self,
        /,
        result: Any = UNSET,
        *,
        before: Any = UNSET,
        after: Any = UNSET,
        effects: Sequence[Mapping[str, Any]] | None = None,
        undo: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Steps[None]:
        """Record the success. `before` and `after` are snapshots of the target, one per target.

        `more` holds `summary`, `reversibility`, `undo_until` or `affects` of each effect. For
        effects that differ give `effects` instead: each with `target` and any of these; an empty
        list says that nothing was changed. `undo` is what only the result tells how to undo; what
        was planned comes first. A call that was made before has been recorded already.
        """
        if self.replayed:
            return
        told: dict[str, Any] = {} if result is UNSET else {"result": result}
        if undo is not None:
            told["compensation"] = undo
        yield from blocking(self._tell_success, told, before, after, effects, more)
        for listener in list(self.run.on_success):
            listener(self.tool)

    succeeded, asucceeded = waits(succeeding), awaits(succeeding)

    def _tell_success(
        self,
        told: dict[str, Any],
        before: Any,
        after: Any,
        effects: Sequence[Mapping[str, Any]] | None,
        more: dict[str, Any],
    ) -> None:
        try:
            effects = None if effects is None else list(effects)
            must_be_words(more, effects or ())
            if effects is not None:
                told["effects"] = [
                    {**effect, "target": as_targets(effect["target"])[0]} for effect in effects
                ]
            elif self.targets and self._leaves_something(after, told.get("compensation"), more):
                told["effects"] = list(self._effects(before, after, more))
            self._settle(EventType.ACTION_SUCCEEDED, told, "succeeded")
        except (TooLarge, ValueError, LookupError, TypeError, RecursionError) as error:
            self._succeeded_bare(error, told.get("compensation"))

    def failing(
        self, error: BaseException | str, *, outcome: Outcome = "unknown", retryable: bool = False
    ) -> Steps[None]:
        """Record the failure. Say `no_effect` only where you know that nothing happened.

        A call that was made before has been recorded already, and what fails now is not it.
        """
        if self.replayed:
            return
        kind = "Error" if isinstance(error, str) else type(error).__name__
        said = {"type": kind, "message": cut(str(error)), "retryable": retryable}
        self.run.failed_action = self.id
        told = {"error": said, "outcome": outcome}
        yield from blocking(self._settle, EventType.ACTION_FAILED, told, outcome)

    failed, afailed = waits(failing), awaits(failing)

    def verifying(self, checks: Sequence[Mapping[str, Any] | tuple[str, Any, Any]]) -> Steps[bool]:
        """Record a read-back: checks of name, expected and actual. Whether all of them hold."""
        told = [check_of(check) for check in checks]
        ok = all(check["ok"] for check in told)
        data = {"ok": ok, "checks": told}
        yield from self.run.saying(EventType.ACTION_VERIFIED, data, n=self.row.n, action=self.id)
        return ok

    verified, averified = waits(verifying), awaits(verifying)

    def __enter__(self) -> Self:
        return self.begin()

    async def __aenter__(self) -> Self:
        try:
            return await self.abegin()
        except asyncio.CancelledError:
            if self._row is not None and self._row.state == "running" and not self.settled:
                await self.afailed("cancelled before the call was made", outcome="no_effect")
            raise

    def leaving(self, error: BaseException | None) -> Steps[None]:
        """Say what is left to say; what cannot be told of a call that was made has passed it."""
        try:
            yield from self._leaving(self._passed_by(error))
        except AmendsError as untold:
            self._passed_by(untold)
            raise

    def _passed_by(self, error: BaseException | None) -> BaseException | None:
        if isinstance(error, AmendsError):
            error.passed, error.told = self._once.locked() or error.told > self._began, moment()
        return error

    def _leaving(self, error: BaseException | None) -> Steps[None]:
        if self.settled or self.replayed:
            return
        # Else it is another's word: of a helper, or of an action within this one.
        if isinstance(error, NoEffect) and not (error.passed or self._is_given):
            yield from self.failing(error, outcome="no_effect", retryable=error.retryable)
        elif error is not None:
            yield from self.failing(error)
        elif self._returned is not UNSET:
            try:
                refuse_lazy(self._returned, self.tool)
            except TypeError as unmade:
                yield from self.failing(unmade)
                raise
            yield from self.succeeding(self._returned)
        else:
            missing = MissingOutcome(f"{self.tool} ended without succeeded(...) or failed(...)")
            yield from self.failing(missing)
            raise missing

    def _has_changed(self) -> bool:
        """Whether the arguments were changed since they were put to the desk, or approved."""
        try:
            is_other = self.is_changed and as_text(plain(self._changed)) != self._approved
            return is_other or as_text(plain(self._given)) != as_text(self._planned["args"])
        except Exception:  # noqa: BLE001 - another thread changes them while we look
            return True

    def _heed(self, ask: BeginRequest, arguments: Any, unkept: SpoolFull | InDoubt | None) -> None:
        """Take the arguments that an approver has changed, if any. ArgumentsChanged where the call
        cannot be made with what was approved, NoEffect where its run has ended, and `unkept`.
        """
        if unkept is not None:
            raise unkept
        if self.run.ended:
            raise NoEffect(ENDED)
        if self._has_changed():
            raise ArgumentsChanged(CHANGED)
        if arguments is None:
            return
        if "accepts_changed_arguments" not in self._planned or not isinstance(arguments, dict):
            raise ArgumentsChanged(NOT_TAKEN)
        own, masked = self._planned["args"], ask.planned.data["args"]
        self._changed = with_own_secrets(arguments, own, masked, self.run.desk.masking_key)
        self._approved = as_text(self._changed)  # whoever is handed them may change them

    def _own_key(self) -> str:
        workspace, run, op = self.run.desk.workspace, self.run.id, self._planned["op"]
        told = {"workspace": workspace, "run": run, "tool": self.tool, "op": op}
        return idempotency_key(**told, targets=self.targets)

    def _ask(self, key: str) -> BeginRequest:
        """A planned action with a number of its own; a known key keeps its first number."""
        self.run.desk.need_masking_key()
        self.run.desk.freshen()  # a run may last for days, and the desk be away at their end
        known = self.run.known(key)
        n = known.n if known else self.run.next_n()
        action = known.action if known else f"act_{n}_{secrets.token_hex(3)}"
        told = {"tool": self.tool, "key": key, **self._planned}
        told |= self.run.news_of(self.tool, self._shape)
        planned = self.run.build(EventType.ACTION_PLANNED, told, n=n, action=action)
        data = planned.data
        if holds_mask(data["key"]):  # two such keys would be one, and the second call never made
            raise Refused(MASKED_KEY["status"], MASKED_KEY)
        asked = {name: data.get(name) for name in ("tool", "targets", "args")}
        policy, kind, bare = self.run.desk.policy, self.effect_class, holds_bare(asked)
        gated = is_gated(policy, tool=self.tool, effect_class=kind, risk=data.get("risk"))
        gated = gated or (keeps_order(policy) and self._breaks_order(key))
        pivot = is_pivot(policy, self.tool, effect_class=kind, saga=told.get("saga"))
        known_by = key, digest_of(asked), new_id(), self._retry
        return BeginRequest(planned, *known_by, gated, not bare, pivot)

    def _breaks_order(self, key: str) -> bool:
        """Whether this comes after the run's pivot and is not such as can be retried."""
        is_free = self._planned.get("saga") == "retriable" or self.effect_class in WITHOUT_EFFECT
        return not is_free and self.run.desk.spool.has_pivot(self.run.id, but=key)

    def _gate(self, ask: BeginRequest) -> Steps[Begun]:
        told = {"attempt": ask.attempt} | ({"retry": ask.retry} if ask.retry else {})
        n, action = (ask.planned.event[name] for name in ("n", "action"))
        started = self.run.build(EventType.ACTION_STARTED, told, n=n, action=action)
        begin, wait = self.run.desk.gate.begin, self._wait_seconds
        return (yield from begin(ask, started=started, wait_seconds=wait, on_wait=self.on_wait))

    def _settle(self, event: str, data: dict[str, Any], state: KeyState, **more: Any) -> None:
        if self.settled:
            raise AmendsError(RECORDED)
        fence = {} if self.row.fence is None else {"fence": self.row.fence}
        data = {"attempt": self.row.attempt, **data, **fence}
        if self.is_changed:
            data["args"] = json.loads(self._approved)
        told = self.run.build(event, data, n=self.row.n, action=self.id, more=more)
        row = replace(self.row, state=state, result=told.data.get("result"))
        self.run.desk.send(told, key=row)
        self._row, self.settled = row, True
        if state == "succeeded":
            self.run.went_well(row.action)

    def _succeeded_bare(self, error: Exception, undo: Any) -> None:
        """The call was made: so much is recorded, and its undo where that can be told. What is too
        large or too deep is left out and logged; a mistake in the code is raised.
        """
        data: dict[str, Any] = {"result": {"not_recorded": cut(str(error))}}
        if self.targets and self._leaves_something(UNSET, undo, {}):
            data["effects"] = [{"target": target} for target in self.targets]
        more = {} if undo is None else {"compensation": undo}
        self._settle(EventType.ACTION_SUCCEEDED, data, "succeeded", **more)
        if not isinstance(error, TooLarge | Unfit | RecursionError):
            raise error
        log.warning("%s succeeded, but its result or snapshots are not kept: %s", self.id, error)

    def _leaves_something(self, after: Any, undo: Any, more: Mapping[str, Any]) -> bool:
        """Whether the call has effects on its targets: of a draft, where something is said of what
        it left or of how that is put away.
        """
        if self.effect_class != ActionClass.DRAFT:
            return self.effect_class not in WITHOUT_EFFECT
        return after is not UNSET or bool(undo or self._planned.get("compensation") or more)

    def _effects(self, before: Any, after: Any, more: dict[str, Any]) -> Iterator[dict[str, Any]]:
        befores, afters = (per_target(one, len(self.targets)) for one in (before, after))
        planned = self._planned.get("before") or [None] * len(self.targets)
        for target, was, now, of_it in zip(self.targets, befores, afters, planned, strict=True):
            effect = {"target": target, "before": was, "after": now, **more}
            known = {name: value for name, value in effect.items() if value is not UNSET}
            yield self.run.honest(known, of_it)
