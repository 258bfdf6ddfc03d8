"""The gate: may this call be made now? Asked of the desk; of the spool while the desk is away.

It fails closed. What needs the desk is not done without it, and what may be done without it is on
disk before it happens.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from amends.drivers import Pause, Steps, blocking, called
from amends.errors import (
    AmendsError,
    ApprovalTimeout,
    Compensated,
    Denied,
    DeskUnreachable,
    InDoubt,
    InProgress,
    KeyReused,
    NoEffect,
    NotTheDesk,
    Refused,
    SpoolFull,
    Stopped,
    Throttled,
    in_words,
)
from amends.events import Statement, new_id
from amends.sender import Sender
from amends.spool import KeyRow, KeyState, Spool, compact
from amends.wire import get, post

log = logging.getLogger("amends")
T = TypeVar("T")

# How often a request is made in all that the desk does not answer, and what lies between two tries
# where it does not say.
TRIES = 3
PAUSE_SECONDS = 0.2
# So long a call waits where its agent asks faster than it may; then it is not made.
THROTTLED_SECONDS_MAX = 60.0
POLL_SECONDS = 30
AWAY_PAUSE_SECONDS = 1.0
# Reasons for a denial that mean: the whole run is over, not only this call.
RUN_IS_OVER = frozenset({"run_ended", "recovery"})


NEEDED = "The call may not be made without it and was not made: try again when it is back."
NOT_TWICE = "The call was not made a second time: wait for the other try, or until its lease ends"
REUSED = (
    "this key was used with other arguments, so the call was not made. Where it is a second"
    " operation, give it an `op` of its own"
)
NOT_COMPARABLE = (
    "this key was used before, and a masked value in its arguments cannot be compared while the"
    " desk, whose masking key this client has not fetched yet, is away: the call was not made"
)
# In the desk's own words, for it is said while the desk is away, too.
MASKED_KEY: dict[str, Any] = {
    "type": "/problems/masked",
    "status": 422,
    "title": "“key” reads like a secret or a card number",
    "detail": "“key” reads like a secret or a card number. Send another, such as a UUID.",
}
NOT_THE_DESKS = "the answer is not the desk's"
# What an answer names beside itself.
NAMES = {
    "proceed": "action", "wait": "approval", "compensated": "next_key", "replay": "action",
    "in_doubt": "action",
}  # fmt: skip
LEASE_OVER = (
    "the lease of this call was over before it was made, and the desk does not lend it again"
    " ({}): it was not made"
)
OVER_AGAIN = "or for so short that it was over when it came"
UNDONE = "this call was made once and undone since; it was not made again. `next_key` makes it anew"

Waits = Callable[[dict[str, Any]], Awaitable[None] | None]
Replies = Callable[[str], str | Awaitable[str | None] | None]


@dataclass
class BeginRequest:
    """One call that wants to be made: what is planned, and one try at it."""

    planned: Statement
    key: str
    asked: str
    attempt: str
    retry: str | None
    gated: bool
    is_comparable: bool = True
    is_pivot: bool = False
    was: KeyRow | None = None
    """What the spool knew of the key before the desk was told of it, and asked."""
    asked_at: float = 0.0
    """By `awake_or_not`, when the desk was asked last."""

    def row(self, state: KeyState, *, answer: dict[str, Any] | None = None) -> KeyRow:
        event, known = self.planned.event, answer or {}
        return KeyRow(
            key=self.key, run=event["run"], action=known.get("action") or event["action"],
            n=event["n"], asked=self.asked, attempt=self.attempt, fence=known.get("fence"),
            state=state, result=known.get("result"),
        )  # fmt: skip


def trying(once: Callable[[], Steps[T]]) -> Steps[T]:
    """What it returns; made again, TRIES times in all, where the desk does not answer or says “not
    now”: it may be starting, or its database be changing places. Raises what the last try did.
    """
    for left in reversed(range(TRIES)):
        try:
            return (yield from once())
        except Throttled:
            raise
        except DeskUnreachable as away:
            if not left:
                raise
            yield Pause(away.retry_after or PAUSE_SECONDS)
    raise AssertionError("the last try returns or raises")


def in_turn(once: Callable[[], Steps[T]]) -> Steps[T]:
    """What it returns; where this agent asks faster than it may, made again when the desk says."""
    end = time.monotonic() + THROTTLED_SECONDS_MAX
    while True:
        try:
            return (yield from once())
        except Throttled as fast:
            if time.monotonic() + fast.retry_after > end:
                raise
            yield Pause(max(fast.retry_after, PAUSE_SECONDS))


class Approval(NamedTuple):
    """The yes that let a call proceed: its number, and the page that says whose it is."""

    id: str
    url: str


@dataclass
class Lease:
    """How long the desk has lent the call to this try: until then by `awake_or_not`."""

    ask: BeginRequest
    until: float

    @property
    def is_over(self) -> bool:
        """Of who stood still for longer: a process that was stopped, a machine that slept."""
        return awake_or_not() >= self.until


class Begun(NamedTuple):
    """The row of the key, the arguments where an approver has changed them, the yes where people
    were asked, what kept the row from being remembered (then the call may not be made: InDoubt
    where it was made meanwhile by who could not ask), and the lease where the desk says how long.
    """

    row: KeyRow
    arguments: Any = None
    approval: Approval | None = None
    unkept: SpoolFull | InDoubt | None = None
    lease: Lease | None = None


def awake_or_not() -> float:
    """Seconds by a clock that nobody sets, and that goes on while the machine sleeps."""
    known = vars(time)  # of macOS it is the second, and not what `monotonic` asks
    clock = known.get("CLOCK_BOOTTIME", known.get("CLOCK_MONOTONIC"))
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class Gate:
    """Asks, waits and remembers. `on_wait` hears once of each approval that is waited for.

    `on_question` is given what a person asks back before deciding; its answer is shown to them.
    """

    def __init__(
        self,
        spool: Spool,
        sender: Sender,
        *,
        on_wait: Waits | None,
        on_question: Replies | None = None,
    ) -> None:
        self._spool, self._sender = spool, sender
        self._on_wait, self._on_question = on_wait, on_question

    def begin(
        self,
        ask: BeginRequest,
        *,
        started: Statement,
        wait_seconds: float,
        on_wait: Waits | None = None,
    ) -> Steps[Begun]:
        """The row of the key: `running` if the call is to be made now, `succeeded` if it was.

        `started` is the statement of this try, kept in the spool if the desk is away; `on_wait`
        hears of this call's approvals in the place of the gate's own. Raises Denied, Stopped,
        ApprovalTimeout, InDoubt, InProgress, KeyReused, Compensated, Throttled, NotTheDesk or
        DeskUnreachable.
        """
        try:
            answer = yield from in_turn(lambda: self._prepare_and_ask(ask))
        except Throttled:
            raise  # the desk is there, so nothing is done without it
        except NotTheDesk as other:  # it may answer so to this call alone, and no other way is open
            raise NotTheDesk(f"{other} {NEEDED}") from other
        except DeskUnreachable as away:
            return Begun((yield from blocking(self._alone, ask, started, away)))
        if answer["answer"] == "wait":
            answer = yield from self._wait(ask, answer, wait_seconds, on_wait or self._on_wait)
        return (yield from blocking(self._heed, ask, answer))

    def renewed(self, ask: BeginRequest, row: KeyRow) -> Steps[Begun]:
        """A call whose lease was over before it is made, asked for once more under the same try:
        the run may be recovered by now, or another try have made it (`succeeded`). Raises NoEffect
        where it is not lent any more.
        """
        try:
            answer = yield from in_turn(lambda: self._ask(ask))
        except AmendsError as no:
            if type(no) is DeskUnreachable and not ask.gated:  # it may be made without it
                return Begun(row)
            raise NoEffect(LEASE_OVER.format(no)) from no
        if answer["answer"] not in ("proceed", "replay"):
            raise NoEffect(LEASE_OVER.format(answer.get("reason") or answer["answer"]))
        begun = yield from blocking(self._heed, ask, answer)
        if begun.lease and begun.lease.is_over:
            raise NoEffect(LEASE_OVER.format(OVER_AGAIN))
        return begun

    def explaining(self, ask: BeginRequest) -> Steps[dict[str, Any]]:
        """What the desk would answer now, and under `explain` why; it begins nothing. Raises
        Refused, InProgress, KeyReused or DeskUnreachable.
        """
        return (yield from in_turn(lambda: self._tell_and_explain(ask)))

    def _tell_and_explain(self, ask: BeginRequest) -> Steps[dict[str, Any]]:
        """What was said before may be what the answer depends on."""
        yield from trying(lambda: blocking(self._tell_before, ask))
        return (yield from self._ask(ask, explain="1"))

    def _prepare_and_ask(self, ask: BeginRequest) -> Steps[dict[str, Any]]:
        """What may go on without the desk does not wait for it; what needs it asks again."""
        if ask.gated:
            yield from trying(lambda: blocking(self._make_ready, ask))
        else:
            yield from blocking(self._make_ready, ask)
        return (yield from self._ask(ask))

    def _make_ready(self, ask: BeginRequest) -> None:
        """What was said before is there before the question is, and so are its snapshots."""
        self._spool.need_room()
        self._tell_before(ask)
        self._spool.keep(ask.planned.blobs)

    def _tell_before(self, ask: BeginRequest) -> None:
        """What waits of this run, and of the one that may have used the key while the desk was
        away.
        """
        ask.was, run = self._spool.find(ask.key), ask.planned.event["run"]
        for one in dict.fromkeys([run, ask.was.run if ask.was else run]):
            self._sender.drain(one)

    def _ask(self, ask: BeginRequest, **params: str) -> Steps[dict[str, Any]]:
        """Send `begin`, again with the same attempt where the answer was lost."""
        try:
            answer = yield from trying(lambda: self._ask_once(ask, params))
        except Refused as refused:
            if meaning := _meaning(refused):
                raise meaning from refused
            raise
        explains = isinstance(answer.get("explain"), dict)
        if not (explains if params else _is_the_desks(answer)):
            raise NotTheDesk(NOT_THE_DESKS)
        return answer

    def _ask_once(self, ask: BeginRequest, params: Mapping[str, str]) -> Steps[dict[str, Any]]:
        body = {**ask.planned.event, "attempt": ask.attempt}
        if ask.retry:
            body["retry"] = ask.retry
        if ask.planned.blobs:
            yield from blocking(self._sender.upload, tuple(ask.planned.blobs))
        ask.asked_at = awake_or_not()
        answer: dict[str, Any] = yield post("actions/begin", compact(body).encode(), params=params)
        return answer

    def _wait(
        self, ask: BeginRequest, answer: dict[str, Any], seconds: float, on_wait: Waits | None
    ) -> Steps[dict[str, Any]]:
        """Wait until people have decided; where they have changed the arguments meanwhile, also for
        the approval that took the place of the first.
        """
        end, told = time.monotonic() + seconds, ""
        while answer["answer"] == "wait":
            if answer["approval"] != told:
                told = str(answer["approval"])
                tool, where = ask.planned.data["tool"], answer.get("url") or told
                # Else a program would stand still for an hour, and nobody would know why.
                level = logging.WARNING if on_wait is None else logging.INFO
                log.log(level, "%s waits until people have decided: %s", tool, where)
                if on_wait is not None:
                    yield from called(on_wait, answer)
            answer = yield from self._decided(ask, answer, end)
        return answer

    def _decided(
        self, ask: BeginRequest, answer: dict[str, Any], end: float
    ) -> Steps[dict[str, Any]]:
        """Poll until an approval has ended, then ask anew: the answer to that decides."""
        path, heard, met = f"approvals/{answer['approval']}", 0, set[str]()
        unanswered: DeskUnreachable | None = None  # the last try, where it was
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise unanswered or ApprovalTimeout(
                    str(answer["approval"]), str(answer.get("url") or "")
                )
            try:
                asks = {"heard": str(heard)} if self._on_question else {}
                wait = max(1, min(POLL_SECONDS, left))
                seen: dict[str, Any] = yield get(path, wait_seconds=wait, params=asks)
                if _state_of(seen) != "waiting":
                    return (yield from self._ask(ask))
                yield from self._reply(path, seen, met)
                asked, unanswered = seen.get("asked"), None
                heard = asked if isinstance(asked, int) else 0
            except DeskUnreachable as away:
                if time.monotonic() >= end:
                    raise
                unanswered = away
                yield Pause(max(away.retry_after, AWAY_PAUSE_SECONDS))

    def _reply(self, path: str, seen: dict[str, Any], met: set[str]) -> Steps[None]:
        """Answer what people asked back, once. Without an answer an operator may give one."""
        questions = seen.get("questions")
        for one in questions if isinstance(questions, list) else ():
            known = str(one.get("id")) if isinstance(one, dict) else ""
            if self._on_question is None or not known.isdecimal() or known in met:
                continue
            met.add(known)
            words = yield from called(self._on_question, str(one.get("question")))
            if not words:
                continue
            try:
                said = compact({"question": int(known), "answer": words})
                yield post(f"{path}/answers", said.encode())
            except Refused as refused:  # somebody was faster, or it is decided meanwhile
                log.info("an answer was not taken: %s", refused)

    def _heed(self, ask: BeginRequest, answer: dict[str, Any]) -> Begun:
        said = answer["answer"]
        if said in ("proceed", "replay"):
            row = ask.row("running" if said == "proceed" else "succeeded", answer=answer)
            unkept = self._unkept(row, ask)
            if said == "replay":
                return Begun(row, unkept=unkept)
            named, url = (answer.get(name) for name in ("approval", "url"))
            approval = Approval(str(named), str(url or "")) if named else None
            seconds = _lease_seconds(answer)
            lease = Lease(ask, ask.asked_at + seconds) if seconds else None
            return Begun(row, answer.get("arguments"), approval, unkept, lease)
        if said == "in_doubt":
            self._unkept(ask.row("unknown", answer=answer), ask)
            raise InDoubt(str(answer.get("action")))
        if said == "compensated":
            raise Compensated(UNDONE, str(answer["next_key"]))
        if said == "denied":
            reason = str(answer.get("reason") or "the desk does not allow it")
            raise (Stopped if str(answer.get("code")) in RUN_IS_OVER else Denied)(reason, answer)
        raise DeskUnreachable(f"the desk answers {said!r}, which this client does not know")

    def _unkept(self, row: KeyRow, ask: BeginRequest) -> SpoolFull | InDoubt | None:
        """Remember it; gives why not: the disk, or a call of which the desk did not know."""
        try:
            with self._spool.needed():
                made = self._spool.note(row, was=ask.was, is_pivot=ask.is_pivot)
        except SpoolFull as full:
            return full
        return InDoubt(made.action) if made else None

    def _alone(self, ask: BeginRequest, started: Statement, away: DeskUnreachable) -> KeyRow:
        """The desk is away: answer from our own keys, and from the last policy."""
        row = self._spool.find(ask.key)
        if row and row.state != "no_effect":
            if not ask.is_comparable:
                raise KeyReused(NOT_COMPARABLE) from away
            if row.asked != ask.asked:
                raise KeyReused(REUSED) from away
        if row and row.state == "succeeded":
            return row
        if row and row.state in ("running", "unknown"):
            raise InDoubt(row.action) from away
        if ask.gated:
            raise DeskUnreachable(f"{away} {NEEDED}", retry_after=away.retry_after) from away
        running = ask.row("running")
        if row and row.run == running.run:
            running = dataclasses.replace(running, action=row.action, n=row.n)
            ask.planned.event.update(action=row.action, n=row.n)
            started.event.update(action=row.action, n=row.n)
        planned = ask.planned
        if ask.is_pivot and not planned.data.get("saga"):  # the desk may have it without that
            planned.event["id"], planned.data["saga"] = new_id(), "pivot"
        is_mine = self._spool.begin(
            planned.event, started.event, blobs=planned.blobs, key=running, was=row,
            is_pivot=ask.is_pivot,
        )  # fmt: skip
        if not is_mine:  # another process or thread was faster: ask what stands there now
            return self._alone(ask, started, away)
        self._sender.wake()
        return running


def _is_the_desks(answer: dict[str, Any]) -> bool:
    """Whether it is one of the desk's answers, with all that belongs to it: half a yes is none."""
    said, fence = answer.get("answer"), answer.get("fence")
    named = answer.get(NAMES.get(str(said), "answer"))
    if not (isinstance(said, str) and isinstance(named, str) and named):
        return False
    return said != "proceed" or (type(fence) is int and fence > 0 and _is_lent(answer))


def _is_lent(yes: dict[str, Any]) -> bool:
    """Whether it says until when the call is this try's."""
    try:
        return datetime.fromisoformat(yes["lease_until"]).tzinfo is not None
    except (KeyError, TypeError, ValueError):
        return False


def _lease_seconds(yes: dict[str, Any]) -> float:
    """For how long it is; 0 where an older desk does not say."""
    seconds: Any = yes.get("lease_seconds")
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return float(seconds) if is_number and seconds > 0 else 0.0


def _state_of(approval: dict[str, Any]) -> str:
    state = approval.get("state")
    if not isinstance(state, str):
        raise DeskUnreachable(NOT_THE_DESKS)
    return state


def _meaning(refused: Refused) -> InProgress | KeyReused | None:
    """What a refusal says of the key, if it is about that."""
    kind = str(refused.problem.get("type", ""))
    if kind.endswith("in-progress"):
        return InProgress(f"{in_words(refused.problem)}. {NOT_TWICE}")
    if kind.endswith("key-reused"):
        return KeyReused(REUSED)
    return None
