"""Outbound calls that are under way, many side by side if need be; and questions to plug-ins.

One is made ready where the database may be asked, carried out in a thread that knows nothing of
the database, and told of where the database may be asked again: three places, so that one worker
can have many calls on the wire and one connection to PostgreSQL.

It ends at its time limit whatever the connector does meanwhile. A method that hangs is left
behind in its thread; it can send nothing more, for everything that `Outbound` gives out ends at the
same deadline.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from connectors import calllog
from connectors.calllog import CallRecord
from connectors.contract import CannotRead, Connector, Refused
from connectors.normalization import Redaction
from connectors.outbound import OutOfTime
from connectors.registry import BUILT_IN
from workspaces import clock

logger = logging.getLogger(__name__)
A = TypeVar("A")


T = TypeVar("T")

GRACE_SECONDS = 0.5
"""How much longer than its limit we wait for a connector, so that it may end and say why."""

QUICK_SECONDS = 0.002
"""Calls that take no longer may wait for each other; handing one over takes a tenth of that."""

STALE_SECONDS = 0.5
"""A call that could not begin for so long does not begin: its caller's time may be over. Whoever
waits for this one alone knows that it is not."""

HANDS_IDLE_MAX = 64
"""Threads kept for the next calls; more are made when they are needed, and end afterwards."""

Answers = queue.SimpleQueue["OutboundCall[object]"]


@dataclass(slots=True, eq=False)
class OutboundCall(Generic[T]):
    """One call. `work` may run in any thread; `judge` turns what came of it into the answer, or
    raises, and says on `line` how it ended.
    """

    line: CallRecord
    limit_seconds: float
    work: Callable[[], T] | None
    judge: Callable[[OutboundCall[T]], T]
    redaction: Redaction = field(default_factory=Redaction)
    came: T | None = None
    failure: BaseException | None = None
    is_late: bool = False
    is_waited_for: bool = False
    began: float = 0.0

    @property
    def ends_at(self) -> float:
        """By `boot_seconds()`: when we stop waiting for it."""
        return self.began + self.limit_seconds + GRACE_SECONDS

    def start(self, answers: Answers) -> None:
        """Carry it out in another thread, which puts it into `answers` when it has come back."""
        self.began = clock.boot_seconds()
        if self.work is None:  # it could not leave, and `failure` says why
            answers.put(self)  # type: ignore[arg-type]
        else:
            lend(lambda: self.carry_out(answers))

    def carry_out(self, answers: Answers) -> None:
        """Do it here, and put it into `answers`."""
        assert self.work is not None  # noqa: S101 - whoever starts it has looked
        now = clock.boot_seconds()
        if now - self.began > (self.limit_seconds if self.is_waited_for else STALE_SECONDS):
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
        self.line.seconds = clock.boot_seconds() - self.began
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
            self.line.seconds = clock.boot_seconds() - self.began
            self.failure = OutOfTime(f"No answer within {self.limit_seconds:g} seconds.")
        return self.judge(self)

    def here(self) -> T:
        """Carry it out, wait for it, and log it."""
        answers: Answers = queue.SimpleQueue()
        self.is_waited_for = True
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
                call.began = clock.boot_seconds()
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


# Questions: what a connector says without a call, and how long it may think.
#
# Triage asks about fifty runs in one transaction, and a page asks while somebody waits: a plug-in
# that raises or hangs here must stop nobody else. So it is asked in a hand of its own and left
# behind there when its time is over; either way it has refused. That it hangs is known of the
# connection over which it was asked, and of no other: its answers rest on that one's settings, and
# what one workspace has configured must not stop another. What is our own code is asked plainly:
# our connectors, which fill in templates and no more, and whatever a plug-in has left as the
# contract has it. Handing over costs more than such an answer, and the engine asks often.


SECONDS_MAX = 5.0
"""A pure answer takes a millisecond; a process that is starved of its core some seconds."""

PAUSE_SECONDS = 60.0
"""For so long after it hung it is not asked the same: a batch of fifty runs waits for it once."""

HANGING_MAX = 5
"""Hands that may hang in one question over a connection; each is lost to its process till then."""

HANGING_ALTOGETHER_MAX = 25
"""In all questions of one workspace, however many connections it has."""


class ConnectionKey(NamedTuple):
    """For whom a connector is asked: the workspace, and its connection's name."""

    workspace: int
    connection: str


@dataclass(slots=True)
class _Hanging:
    """The hands that have not come back with the answer to one question."""

    count: int = 0
    since: float = 0.0

    @property
    def is_avoided(self) -> bool:
        return self.count >= HANGING_MAX or (
            self.count > 0 and time.monotonic() - self.since < PAUSE_SECONDS
        )


_Key = tuple[ConnectionKey, str, str]
# By who asks, connector and question; of those only that have a hand out now.
_hanging: dict[_Key, _Hanging] = {}
_counting = threading.Lock()


def asked(
    asker: ConnectionKey,
    connector: Connector,
    name: str,
    question: Callable[[], A],
    *methods: str,
    plainly: bool = True,
) -> A:
    """Its answer to the question of this name, which these methods of it give; raises Refused or
    CannotRead, and nothing else. Its own words may quote what was asked, so only the kind of
    another error is told. `plainly`: whether it may be asked so where the methods are ours.
    """
    try:
        if connector.name in BUILT_IN or (plainly and _is_ours(connector, methods)):
            return question()
        return _bounded(asker, connector, name, question)
    except (Refused, CannotRead):
        raise
    except Exception as failure:
        fault = f"The connector {connector.name} fails with {type(failure).__name__}"
        logger.warning("%s.", fault)
        raise Refused(f"{fault}: see its author.") from failure


def _is_ours(connector: Connector, methods: tuple[str, ...]) -> bool:
    """Whether none of them is the plug-in's own."""
    kind = type(connector)
    return bool(methods) and all(getattr(kind, one) is getattr(Connector, one) for one in methods)


def _bounded(asker: ConnectionKey, connector: Connector, name: str, question: Callable[[], A]) -> A:
    fault = (
        f"The connector {connector.name} did not answer in {SECONDS_MAX:g} s when asked for {name}"
    )
    key = (asker, connector.name, name)
    if _is_avoided(key):
        raise Refused(f"{fault}: see its author.")
    answers: queue.SimpleQueue[tuple[A | None, BaseException | None]] = queue.SimpleQueue()
    under_way = _UnderWay(key)
    lend(lambda: _think(question, answers, under_way))
    try:
        came, failure = answers.get(timeout=SECONDS_MAX)
    except queue.Empty:
        if under_way.leave_behind():
            logger.warning("%s.", fault)
            raise Refused(f"{fault}: see its author.") from None
        came, failure = answers.get()
    if isinstance(failure, Exception):
        raise failure
    if failure is not None:  # it wanted to end the process, which is not a plug-in's to decide
        fault = f"The connector {connector.name} fails with {type(failure).__name__}"
        raise Refused(f"{fault}: see its author.") from failure
    return came  # type: ignore[return-value]


def _is_avoided(key: _Key) -> bool:
    with _counting:
        known = _hanging.get(key)
        mine = sum(one.count for (asker, *_), one in _hanging.items() if asker[0] == key[0][0])
        return mine >= HANGING_ALTOGETHER_MAX or (known is not None and known.is_avoided)


class _UnderWay:
    """One question: it comes back in time or is left behind, and never both."""

    def __init__(self, key: _Key) -> None:
        self._key = key
        self._has_ended = self._is_late = False

    def leave_behind(self) -> bool:
        """False where it has come back after all."""
        with _counting:
            if self._has_ended:
                return False
            self._is_late = True
            known = _hanging.setdefault(self._key, _Hanging())
            known.count += 1
            known.since = time.monotonic()
            return True

    def came_back(self) -> None:
        with _counting:
            self._has_ended = True
            if not self._is_late:
                return
            known = _hanging[self._key]
            known.count -= 1
            if not known.count:
                del _hanging[self._key]


def _think(
    question: Callable[[], A],
    answers: queue.SimpleQueue[tuple[A | None, BaseException | None]],
    under_way: _UnderWay,
) -> None:
    came, failure = None, None
    try:
        came = question()
    except BaseException as raised:  # noqa: BLE001 - handed to whoever waits for it
        failure = raised
    answers.put((came, failure))
    under_way.came_back()
