"""What stories about two people in one moment wait for: that a session waits for a lock."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from django.db import connection, connections, transaction

WAITING = """
SELECT count(DISTINCT pid) FROM pg_locks waiting WHERE NOT granted AND EXISTS (
    SELECT FROM pg_locks held JOIN pg_database d ON d.oid = held.database
    WHERE held.pid = waiting.pid AND d.datname = current_database())
"""
SECONDS_MAX = 60


def waiting() -> int:
    """How many sessions wait for a lock; a lock is told of at once, a session is not."""
    with connection.cursor() as cursor:
        cursor.execute(WAITING)
        count: int = cursor.fetchone()[0]
    return count


def waits(count: int, *, unless: Callable[[], bool] = lambda: False) -> None:
    """Until so many sessions wait for a lock, `unless` something has come instead."""
    deadline = time.monotonic() + SECONDS_MAX
    while waiting() < count and not unless():
        assert time.monotonic() < deadline, "nobody waits"
        time.sleep(0.05)


def elsewhere(work: Callable[[], Any]) -> Any:
    """What it returns, on a connection of its own thread."""
    try:
        return work()
    finally:
        connections.close_all()


def came_of(work: Callable[[], Any]) -> Any:
    """What it returns elsewhere, or what it raised."""
    try:
        return elsewhere(work)
    except Exception as failure:  # noqa: BLE001 - told to the test
        return failure


def comes_before_the_commit(first: Callable[[], object], second: Callable[[], Any]) -> Any:
    """`first` in a transaction; `second` begins before its commit, and has to wait for it. Returns
    and raises what `second` does.
    """
    (came,) = behind(first, second)
    if isinstance(came, Exception):
        raise came
    return came


def behind(
    first: Callable[[], object],
    *others: Callable[[], Any],
    unless_over: Callable[[], Any] | None = None,
) -> list[Any]:
    """`first` in a transaction; the others begin before its commit, one after another, and each has
    to wait, but that `unless_over` may already be over. Returns what came of them.
    """
    going: list[Future[Any]] = []
    with ThreadPoolExecutor(len(others)) as pool:
        with transaction.atomic():
            first()
            for one in others:
                going.append(pool.submit(came_of, one))
                may_be_over = going[-1].done if one is unless_over else bool
                waits(len(going), unless=may_be_over)
        return [one.result() for one in going]


def at_once(*works: Callable[[], object]) -> None:
    """Each in a thread of its own, started together; the first failure is raised here."""
    barrier = threading.Barrier(len(works))

    def work(one: Callable[[], object]) -> Any:
        barrier.wait(SECONDS_MAX)
        return one()

    with ThreadPoolExecutor(len(works)) as pool:
        came = list(pool.map(came_of, [partial(work, one) for one in works]))
    for failure in came:
        if isinstance(failure, Exception):
            raise failure
