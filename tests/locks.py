"""What stories about two people in one moment wait for: that a session waits for a lock."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

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


def comes_before_the_commit(first: Callable[[], object], second: Callable[[], object]) -> None:
    """`first` in a transaction; `second` begins before its commit, and has to wait for it."""

    def elsewhere() -> None:
        second()
        connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            first()
            later = pool.submit(elsewhere)
            waits(1)
        later.result()
