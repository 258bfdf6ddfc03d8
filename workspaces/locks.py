"""Locks: in which order the whole product takes those on rows, and how strongly; and those for DDL.

Whoever locks rows of several kinds goes down `ORDER`, and takes rows of one kind in the order of
their ids (runs of a recording by their names), so that two of them never wait for each other.
docs/architecture.md says of each kind why it stands where it does.

There is one strength. FOR NO KEY UPDATE keeps out everybody who locks or changes the row; FOR
UPDATE would also hold up each row that only refers to it, and no row here changes its key.
"""

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import DEFAULT_DB_ALIAS, OperationalError, connections
from django.db.models import Model, QuerySet
from psycopg.errors import DeadlockDetected, LockNotAvailable

T = TypeVar("T")
logger = logging.getLogger(__name__)


ORDER = (
    "workspaces_workspace",
    "approvals_gatekey",
    "recovery_step",
    "ledger_run",
    "workspaces_agent",
    "recovery_plan",
    "recovery_case",
    "recovery_correction",
    "approvals_approval",
)
"""The tables of which rows are waited for, the first to be locked first. A stop alone locks its
plan before steps of it, and of runs only the plan's own."""

ROW_LOCK = "FOR NO KEY UPDATE"
"""For SQL: at the end of a query, and with SKIP LOCKED behind it where the rows are a queue."""

M = TypeVar("M", bound=Model)


def locked(rows: QuerySet[M]) -> QuerySet[M]:
    """The same rows, locked when they are read; of a table that has its place in `ORDER`."""
    table = rows.model._meta.db_table
    if table not in ORDER:
        raise LookupError(f"{table} has no place in the order of locks")
    return rows.select_for_update(of=("self",), no_key=True)


def not_in_hand(rows: QuerySet[M]) -> QuerySet[M]:
    """Those of a queue's rows that nobody else has in hand, locked. It waits for nobody, so that
    any table may be such a queue.
    """
    return rows.select_for_update(of=("self",), no_key=True, skip_locked=True)


# Strong locks: what changes a table waits for whoever reads it, and all others wait behind that.
#
# PostgreSQL grants locks in the order in which they were asked for. A migration that waits behind
# one report of twelve seconds makes every `begin` wait for twelve seconds. So whoever wants a
# strong lock asks for it shortly, lets the others pass, and asks again.


# Others wait for at most this long each time, and then have the table for themselves for so long.
ASK_MILLISECONDS = 500
PAUSE_SECONDS = 2.0
PAUSE_SECONDS_MAX = 15.0

HOLDERS = """
SELECT DISTINCT a.pid, a.usename, a.application_name,
    round(extract(epoch FROM clock_timestamp() - a.xact_start)), left(a.query, 120)
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND l.locktype = 'relation' AND a.pid <> pg_backend_pid()
    AND a.datname = current_database() AND a.xact_start < clock_timestamp() - %s * interval '1 ms'
ORDER BY 4 DESC NULLS LAST LIMIT 5"""

BUILDS = re.compile(r'CREATE INDEX CONCURRENTLY ("\w+") ')
IS_WHOLE = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"
# Of a build that another role began, PostgreSQL does not say which one it is.
IS_BEING_BUILT = """
SELECT EXISTS (SELECT FROM pg_stat_progress_create_index WHERE datname = current_database()
    AND (index_relid = to_regclass(%s) OR relid IS NULL))"""
BUILDING = 0xB01D
"""The advisory lock of whoever builds an index, so that two upgrades take turns."""

LOOK_AGAIN_SECONDS = 1.0


class StillLocked(Exception):
    """We stopped because others held the lock all the time; the message names them. What was under
    way was rolled back: end them, and begin again.
    """


def patiently(database: str, work: Callable[[], T], *, seconds_max: float, what: str) -> T:
    """Do `work`, which begins and ends its own transactions on `database`, until it gets its locks.

    Raises StillLocked after `seconds_max`; everything else that `work` raises passes.
    """
    end, pause = time.monotonic() + seconds_max, PAUSE_SECONDS
    while True:
        try:
            with short_lock_timeout(database):
                return work()
        except OperationalError as error:
            if not isinstance(error.__cause__, LockNotAvailable | DeadlockDetected):
                raise
            told = holders(database)
            if time.monotonic() + pause > end:
                raise StillLocked(
                    f"{what} did not get its locks. They are held by: {told}"
                ) from error
            logger.warning("%s waits for locks, and lets others pass: %s", what, told)
        time.sleep(pause)
        pause = min(pause * 2, PAUSE_SECONDS_MAX)


@contextmanager
def short_lock_timeout(database: str) -> Iterator[None]:
    """Ask shortly, except for what is built CONCURRENTLY: that holds nobody up, and stops half way
    when it is not waited for.
    """
    connection = connections[database]

    def unhurried(execute: Any, sql: str, params: Any, many: Any, context: Any) -> Any:
        if "CONCURRENTLY" not in str(sql):
            return execute(sql, params, many, context)
        with connection.cursor() as cursor:
            cursor.cursor.execute("SET lock_timeout = 0")
            try:
                built = BUILDS.match(str(sql))
                if built is None:
                    return execute(sql, params, many, context)
                with _in_turn(cursor.cursor):
                    if _is_there(cursor.cursor, built[1]):
                        return None
                    return execute(sql, params, many, context)
            finally:
                cursor.cursor.execute(f"SET lock_timeout = {ASK_MILLISECONDS}")

    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, false)", [str(ASK_MILLISECONDS)])
    try:
        with connection.execute_wrapper(unhurried):
            yield
    finally:
        if connection.is_usable():
            with connection.cursor() as cursor:
                cursor.execute("RESET lock_timeout")


@contextmanager
def _in_turn(cursor: Any) -> Iterator[None]:
    """While nobody else builds. It is tried for and never waited for in a statement: a build waits
    for all that were under way.
    """
    while not cursor.execute("SELECT pg_try_advisory_lock(%s)", [BUILDING]).fetchone()[0]:
        time.sleep(LOOK_AGAIN_SECONDS)
    try:
        yield
    finally:
        cursor.execute("SELECT pg_advisory_unlock(%s)", [BUILDING])


def _is_there(cursor: Any, index: str) -> bool:
    """Whether an upgrade that was cut off has built this index already, or somebody does so just
    now; what is left half built is dropped. A build ends a moment before its index is whole: it is
    looked at twice.
    """
    is_left = False
    while found := cursor.execute(IS_WHOLE, [index]).fetchone():
        if found[0]:
            return True
        was_left = is_left
        is_left = not cursor.execute(IS_BEING_BUILT, [index]).fetchone()[0]
        if was_left and is_left:
            cursor.execute(f"DROP INDEX CONCURRENTLY {index}")
            return False
        time.sleep(LOOK_AGAIN_SECONDS)
    return False


def holders(database: str) -> str:
    """Who has had a lock on a table since before it was asked for, the longest first."""
    with connections[database].cursor() as cursor:
        cursor.execute(HOLDERS, [ASK_MILLISECONDS])
        rows = cursor.fetchall()
    return (
        "; ".join(
            f"process {pid} ({user}, {application or 'no name'}) for {seconds} s: {query}"
            for pid, user, application, seconds, query in rows
        )
        or "somebody who is gone by now"
    )


ADVISORY_SHARED = "SELECT pg_advisory_xact_lock_shared(%b::int, %b::int)"
"""Until the transaction ends, nobody does by `advisory` this kind of thing in the workspace."""


def advisory(kind: int, workspace: int) -> None:
    """Until the transaction ends, nobody else does this kind of thing in the workspace."""
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s::int, %s::int)", [kind, workspace])
