"""Questions: what a connector says without a call, and how long it may think.

Triage asks about fifty runs in one transaction, and a page asks while somebody waits: a plug-in
that raises or hangs here must stop nobody else. So it is asked in a hand of its own and left behind
there when its time is over; either way it has refused. That it hangs is known of the connection
over which it was asked, and of no other: its answers rest on that one's settings, and what one
workspace has configured must not stop another. What is our own code is asked plainly: our
connectors, which fill in templates and no more, and whatever a plug-in has left as the contract has
it. Handing over costs more than such an answer, and the engine asks often.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from connectors.call_pool import lend
from connectors.contract import CannotRead, Connector, Refused
from connectors.registry import BUILT_IN

logger = logging.getLogger(__name__)

T = TypeVar("T")

SECONDS_MAX = 5.0
"""A pure answer takes a millisecond; a process that is starved of its core some seconds."""

PAUSE_SECONDS = 60.0
"""For so long after it hung it is not asked the same: a batch of fifty runs waits for it once."""

HANGING_MAX = 5
"""Hands that may hang in one question over a connection; each is lost to its process till then."""

HANGING_ALTOGETHER_MAX = 25
"""In all questions of one workspace, however many connections it has."""


class Asker(NamedTuple):
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


_Key = tuple[Asker, str, str]
# By who asks, connector and question; of those only that have a hand out now.
_hanging: dict[_Key, _Hanging] = {}
_counting = threading.Lock()


def asked(
    asker: Asker,
    connector: Connector,
    name: str,
    question: Callable[[], T],
    *methods: str,
    plainly: bool = True,
) -> T:
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


def _bounded(asker: Asker, connector: Connector, name: str, question: Callable[[], T]) -> T:
    fault = (
        f"The connector {connector.name} did not answer in {SECONDS_MAX:g} s when asked for {name}"
    )
    key = (asker, connector.name, name)
    if _is_avoided(key):
        raise Refused(f"{fault}: see its author.")
    answers: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()
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
    question: Callable[[], T],
    answers: queue.SimpleQueue[tuple[T | None, BaseException | None]],
    under_way: _UnderWay,
) -> None:
    came, failure = None, None
    try:
        came = question()
    except BaseException as raised:  # noqa: BLE001 - handed to whoever waits for it
        failure = raised
    answers.put((came, failure))
    under_way.came_back()
