"""The sender: takes events from the spool to the desk, in order, until each is there.

One bad event never holds up the others: it is set aside with the reason and reported, whether the
desk refuses it or something on the way does. What is set aside stays on disk and can be sent again.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from amends import forks
from amends.errors import DeskUnreachable, KeyRefused, NotTheDesk, Refused
from amends.events import Statement
from amends.spool import CannotUse, Spool, SpooledEvent, compact
from amends.wire import Wire

log = logging.getLogger("amends")
# Our own, so that a retry in the background never disturbs the agent's seeded `random`.
_chance = random.Random()  # noqa: S311 - a delay is no secret

Parked = Callable[[dict[str, Any], dict[str, Any]], None]

IDLE_SECONDS = 5.0
# After this many seconds without success the pause between tries grows no more.
PAUSE_SECONDS_MAX = 30.0
# An API key that is refused will not be accepted in the next second.
REFUSED_PAUSE_SECONDS = 60.0
# Answers that blame what was sent. Others must cost no event its place, such as a proxy's 404. A
# proxy's 400 or 422 may be about this event, or about every request where it is asked wrongly: the
# first, if the desk can be heard through it otherwise. So may 406 and 451, by which filters refuse,
# and a page of theirs with 200.
ITS_OWN_FAULT = frozenset({400, 406, 413, 422, 451})
TOO_LARGE = 413  # which may be a proxy's word as well
OK, FORBIDDEN = 200, 403
SET_ASIDE = (
    "%d events are set aside in %s; `python -m amends aside` shows them and sends them again"
)
THE_DESK, NOT_THE_DESK = "the desk", "not the desk, but something on the way to it,"
NOTHING = b"[]"
"""A batch without events, which the desk answers, and whoever stands before it lets through."""

ITS_STATUS = 422  # of one event in an answer


class Sender:
    """A background thread that starts with the first event and ends with `close`."""

    def __init__(
        self, spool: Spool, wire: Wire, *, on_parked: Parked | None, before: Callable[[], None]
    ) -> None:
        """`before` is called before anything is sent, and raises where nothing may be."""
        self._spool, self._wire, self._on_parked = spool, wire, on_parked
        self._before = before
        self.born_of_fork()
        forks.tell(self)

    def born_of_fork(self) -> None:
        """Begin anew: no thread goes along to a child, and whoever held the lock is not there."""
        self._sending, self._turn = threading.Lock(), threading.Lock()
        self._starting = threading.Lock()
        self._bell, self._over = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def before_fork(self) -> None:
        """Whoever is sending goes on, which may take long."""

    def after_fork(self) -> None:
        pass

    @property
    def is_at_work(self) -> bool:
        """Whether it has been woken in this process."""
        return self._thread is not None

    def wake(self) -> None:
        """Say that something waits; returns at once."""
        with self._starting:  # two that wake it at once start one thread
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._work, name="amends-sender", daemon=True
                )
                self._thread.start()
        self._bell.set()

    def drain(self, run: str | None = None) -> None:
        """Send all that waits (of one run) now.

        Raises DeskUnreachable, KeyRefused, or Refused where the desk itself will not say whose
        spool this is: then nothing is done as if it were away.
        """
        try:
            self._before()
        except Refused as refused:
            if refused.is_the_desks:
                raise
            raise DeskUnreachable(f"this does not look like the desk: {refused}") from refused
        while self._send_some(run):
            pass

    def _send_some(self, run: str | None) -> bool:
        """Send what waits of one run, or of all one batch; whether there may be more.

        Each thread in its turn: after an outage, what a run has to say before its next call does
        not wait for all that the others have left.
        """
        with self._turn:  # kept by who is next, so that nobody sends twice before
            self._sending.acquire()
        try:
            while batch := self._spool.waiting(run):
                self._send(batch)
                if run is None:
                    return True
            return False
        finally:
            self._sending.release()

    def tell(self, told: Statement) -> None:
        """Send one statement past the spool. Raises as `Wire` does; Refused if it is not taken."""
        for sha256, body in told.blobs.items():
            self._wire.put_blob(sha256, body)
        answer = self._wire.post("events", f"[{compact(told.event)}]".encode())
        for result in answer.get("results") or [{}]:
            if result.get("status") not in ("accepted", "duplicate"):
                raise Refused(ITS_STATUS, result.get("problem") or result)

    def flush(self, seconds: float) -> bool:
        """Try for so long; whether everything is sent. What is not stays in the spool."""
        end = time.monotonic() + seconds
        while True:
            try:
                self.drain()
            except DeskUnreachable:
                if time.monotonic() >= end:
                    return False
                time.sleep(min(0.2, seconds))
            except (KeyRefused, Refused):
                return False
            except CannotUse as damaged:
                log.error("what waits cannot be sent: %s", damaged)  # noqa: TRY400
                return False
            else:
                return True

    def close(self) -> None:
        self._over.set()
        self._bell.set()
        if self._thread is not None:
            self._thread.join(timeout=1)

    def upload(self, names: list[str] | tuple[str, ...]) -> None:
        """Send the blobs of these hashes that are not there yet.

        One that the desk will not take is dropped: what happened matters more than its snapshot.
        """
        try:
            self._upload(names)
        except Refused as refused:
            raise DeskUnreachable(str(refused)) from refused

    def _upload(self, names: list[str] | tuple[str, ...]) -> None:
        """The same; Refused where it is not the desk that will not take one."""
        for sha256 in names:
            body = self._spool.blob(sha256)
            if body is None:
                continue
            try:
                self._wire.put_blob(sha256, body)
            except Refused as refused:
                if not _is_its_own_fault(refused):
                    raise
                log.error("the desk refused a snapshot: %s", refused)  # noqa: TRY400
            self._spool.blob_sent(sha256)

    def _work(self) -> None:
        pause, away = 0.0, False
        while not self._over.is_set():
            self._bell.wait(IDLE_SECONDS)
            self._bell.clear()
            try:
                self.drain()
                if away:
                    log.warning("the desk is there again; what waited is sent")
                pause, away = 0.0, False
            except DeskUnreachable as reason:
                pause = min(max(2 * pause, 0.5, reason.retry_after), PAUSE_SECONDS_MAX)
                if not away:
                    log.warning(
                        "%s What happens is kept in %s until then", reason, self._spool.path
                    )
                away = True
            except KeyRefused as reason:
                pause = REFUSED_PAUSE_SECONDS
                log.error("nothing is sent: %s", reason)  # noqa: TRY400
            except Exception:  # The edge of the thread: it must live on.
                pause = PAUSE_SECONDS_MAX
                log.exception("events could not be sent; they stay in the spool")
            self._over.wait(pause * _chance.uniform(0.75, 1.25))

    def _send(self, batch: list[SpooledEvent]) -> None:
        """Send a batch; where it is refused whole, look for the event that is to blame."""
        try:
            for event in batch:
                self._upload(tuple(event.blobs))
            body = "[" + ",".join(event.body for event in batch) + "]"
            results = _results(self._wire.post("events", body.encode()), len(batch))
        except (Refused, KeyRefused, NotTheDesk) as refused:
            self._look_for_blame(batch, refused)
        else:
            self._settle(batch, results)

    def _look_for_blame(
        self, batch: list[SpooledEvent], refused: Refused | KeyRefused | NotTheDesk
    ) -> None:
        """Raises DeskUnreachable, or KeyRefused, where it is not for what was sent."""
        if isinstance(refused, NotTheDesk):
            problem = {"title": str(refused), "status": OK}
        elif isinstance(refused, KeyRefused):
            if not refused.by_somebody_else:
                raise refused
            problem = {"title": str(refused), "status": FORBIDDEN}
        elif refused.status in ITS_OWN_FAULT:
            problem = refused.problem
        else:
            raise DeskUnreachable(str(refused)) from refused
        if len(batch) > 1:
            half = len(batch) // 2
            self._send(batch[:half])
            self._send(batch[half:])
        elif isinstance(refused, Refused) and refused.is_the_desks:
            self._park(batch[0], problem, THE_DESK)
        elif self._is_heard():
            self._park(batch[0], problem, NOT_THE_DESK)
        elif isinstance(refused, Refused):
            raise DeskUnreachable(str(refused)) from refused
        else:
            raise refused

    def _is_heard(self) -> bool:
        """Whether the desk is there for a request that nobody can mind."""
        try:
            return self._wire.post("events", NOTHING).get("results") == []
        except (Refused, KeyRefused, NotTheDesk):
            return False

    def _settle(self, batch: list[SpooledEvent], results: list[dict[str, Any]]) -> None:
        taken = []
        for event, result in zip(batch, results, strict=True):
            if result.get("status") in ("accepted", "duplicate"):
                taken.append(event.place)
            else:
                self._park(event, result.get("problem") or result, THE_DESK)
        self._spool.sent(taken)

    def _park(self, event: SpooledEvent, problem: dict[str, Any], who: str) -> None:
        self._spool.park(event.place, problem)
        said = json.loads(event.body)
        log.error("%s refused %s %s: %s", who, said["type"], said["id"], problem)
        log.error(SET_ASIDE, self._spool.count_parked(), self._spool.path)
        if self._on_parked is not None:
            self._on_parked(said, problem)


def _results(answer: dict[str, Any], asked: int) -> list[dict[str, Any]]:
    """What the desk says of each event. Raises NotTheDesk where it is nothing of the kind, and
    DeskUnreachable where it is garbled.
    """
    results = answer.get("results")
    if not isinstance(results, list):
        raise NotTheDesk("the answer is not the desk's")
    if len(results) != asked or not all(isinstance(one, dict) for one in results):
        raise DeskUnreachable("the answer is not about what was said")
    return results


def _is_its_own_fault(refused: Refused) -> bool:
    if refused.status not in ITS_OWN_FAULT:
        return False
    return refused.is_the_desks or refused.status == TOO_LARGE
