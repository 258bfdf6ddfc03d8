"""Outbound calls that are under way, many side by side if need be.

One is made ready where the database may be asked, carried out in a thread that knows nothing of
the database, and told of where the database may be asked again: three places, so that one worker
can have many calls on the wire and one connection to PostgreSQL.

It ends at its time limit whatever the connector does meanwhile. A method that hangs is left
behind in its thread; it can send nothing more, for everything that `Outbound` gives out ends at the
same deadline.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from connectors import calllog
from connectors.calllog import Line
from connectors.contract import CannotRead
from connectors.outbound import OutOfTime
from connectors.redaction import Redaction

T = TypeVar("T")

GRACE_SECONDS = 0.5
"""How much longer than its limit we wait for a connector, so that it may end and say why."""

QUICK_SECONDS = 0.002
"""Calls that take no longer may wait for each other; handing one over takes a tenth of that."""

STALE_SECONDS = 0.5
"""A call that could not begin for so long does not begin: its caller's time may be over."""

HANDS_IDLE_MAX = 64
"""Threads kept for the next calls; more are made when they are needed, and end afterwards."""

Answers = queue.SimpleQueue["OutboundCall[object]"]


@dataclass(slots=True, eq=False)
class OutboundCall(Generic[T]):
    """One call. `work` may run in any thread; `judge` turns what came of it into the answer, or
    raises, and says on `line` how it ended.
    """

    line: Line
    limit_seconds: float
    work: Callable[[], T] | None
    judge: Callable[[OutboundCall[T]], T]
    redaction: Redaction = field(default_factory=Redaction)
    came: T | None = None
    failure: BaseException | None = None
    is_late: bool = False
    began: float = 0.0

    @property
    def ends_at(self) -> float:
        """By `time.monotonic()`: when we stop waiting for it."""
        return self.began + self.limit_seconds + GRACE_SECONDS

    def start(self, answers: Answers) -> None:
        """Carry it out in another thread, which puts it into `answers` when it has come back."""
        self.began = time.monotonic()
        if self.work is None:  # it could not leave, and `failure` says why
            answers.put(self)  # type: ignore[arg-type]
        else:
            lend(lambda: self.carry_out(answers))

    def carry_out(self, answers: Answers) -> None:
        """Do it here, and put it into `answers`."""
        assert self.work is not None  # noqa: S101 - whoever starts it has looked
        now = time.monotonic()
        if now - self.began > STALE_SECONDS:
            self.withhold("Not sent: it waited for too long.")
            answers.put(self)  # type: ignore[arg-type]
            return
        self.began = now
        try:
            came = self.work()
        except BaseException as failure:  # noqa: BLE001 - handed to whoever waits for it
            self.failure = failure
        else:
            self.came = came
        self.line.seconds = time.monotonic() - self.began
        _took[self.line.connection.pk, self.line.method] = self.line.seconds
        answers.put(self)  # type: ignore[arg-type]

    def withhold(self, why: str) -> None:
        """It must not leave any more; must not be under way."""
        self.work, self.failure = None, CannotRead(why)

    @property
    def is_quick(self) -> bool:
        """Whether the last call of its kind over its connection was."""
        took = _took.get((self.line.connection.pk, self.line.method))
        return took is not None and took < QUICK_SECONDS

    def give_up(self) -> None:
        """Its time is over; whatever still comes of it is not looked at."""
        self.is_late = True

    def told(self) -> T:
        """What came of it, in the words of the contract; raises what the kind of call may raise."""
        if self.is_late:
            self.line.seconds = time.monotonic() - self.began
            self.failure = OutOfTime(f"No answer within {self.limit_seconds:g} seconds.")
        return self.judge(self)

    def here(self) -> T:
        """Carry it out, wait for it, and log it."""
        answers: Answers = queue.SimpleQueue()
        self.start(answers)
        try:
            answers.get(timeout=self.limit_seconds + GRACE_SECONDS)
        except queue.Empty:
            self.give_up()
        try:
            return self.told()
        finally:
            calllog.write([self.line])


# By connection and method, how many seconds the last call took.
_took: dict[tuple[int, str], float] = {}


class CallPool:
    """Outbound calls that are carried out side by side. Quick ones share a thread, for handing over
    costs more than they do, until one of them takes long: then each of the others gets its own.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._left: deque[OutboundCall[Any]] = deque()

    @property
    def may_spread(self) -> bool:
        return bool(self._left)

    def start(self, calls: Iterable[OutboundCall[Any]]) -> None:
        """Carry them out; they come back through the answers, in any order."""
        shared = []
        for call in calls:
            if call.work is not None and call.is_quick:
                call.began = time.monotonic()
                shared.append(call)
            else:
                call.start(self._answers)
        if shared:
            self._left.extend(shared)
            lend(self._carry_out)

    def spread(self) -> None:
        """Give what has not begun yet hands of its own."""
        while (call := self._next()) is not None:
            lend(partial(call.carry_out, self._answers))

    def _carry_out(self) -> None:
        while (call := self._next()) is not None:
            call.carry_out(self._answers)

    def _next(self) -> OutboundCall[Any] | None:
        try:
            return self._left.popleft()
        except IndexError:
            return None


class _CallThread(threading.Thread):
    """A thread that does one piece of work after the other."""

    def __init__(self) -> None:
        super().__init__(daemon=True, name="call")
        self.given: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def run(self) -> None:
        while True:
            self.given.get()()
            if len(_idle) >= HANDS_IDLE_MAX:
                return
            _idle.append(self)


_idle: list[_CallThread] = []


def lend(work: Callable[[], None]) -> None:
    """Give the work to an idle hand, or a new one: one that hangs is missing, and nothing else."""
    try:
        hand = _idle.pop()
    except IndexError:
        hand = _CallThread()
        hand.start()
    hand.given.put(work)
