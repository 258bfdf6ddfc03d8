"""Errands: calls that are under way, many side by side if need be.

An errand is made ready where the database may be asked, carried out in a thread that knows nothing
of the database, and told of where the database may be asked again: three places, so that one worker
can have many calls on the wire and one connection to PostgreSQL.

An errand ends at its time limit whatever the connector does meanwhile. A method that hangs is left
behind in its thread; it can send nothing more, for everything that `Outbound` gives out ends at the
same deadline.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from connectors import calllog
from connectors.calllog import Line
from connectors.outbound import OutOfTime
from connectors.redaction import Redaction

T = TypeVar("T")

GRACE_SECONDS = 0.5
"""How much longer than its limit we wait for a connector, so that it may end and say why."""

HANDS_IDLE_MAX = 64
"""Threads kept for the next calls; more are made when they are needed, and end afterwards."""

Answers = queue.SimpleQueue["Errand[object]"]


@dataclass(slots=True, eq=False)
class Errand(Generic[T]):
    """One call. `work` may run in any thread; `judge` turns what came of it into the answer, or
    raises, and says on `line` how it ended.
    """

    line: Line
    limit_seconds: float
    work: Callable[[], T] | None
    judge: Callable[[Errand[T]], T]
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
            _lend(lambda: self._carry_out(answers))

    def _carry_out(self, answers: Answers) -> None:
        assert self.work is not None  # noqa: S101 - `start` has looked
        try:
            came = self.work()
        except BaseException as failure:  # noqa: BLE001 - handed to whoever waits for it
            self.failure = failure
        else:
            self.came = came
        self.line.seconds = time.monotonic() - self.began
        answers.put(self)  # type: ignore[arg-type]

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


class _Hand(threading.Thread):
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


_idle: list[_Hand] = []


def _lend(work: Callable[[], None]) -> None:
    """Give the work to an idle hand, or a new one: one that hangs is missing, and nothing else."""
    try:
        hand = _idle.pop()
    except IndexError:
        hand = _Hand()
        hand.start()
    hand.given.put(work)
