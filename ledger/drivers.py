"""Two ways to run a generator of statements: on a waiting connection, and on an awaited one.

What appends to the ledger, and what `begin` looks at and writes, is such a generator, so that the
edge and Django share it. Statements that are yielded together travel together, in libpq's pipeline
mode.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from django.db import connection as database
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.errors import SerializationFailure

from edge.pools import PREPARED_EARLIER, STALE
from ledger.append.statements import (
    LastWrites,
    Rows,
    Statement,
    StatementGenerator,
    StatementsWithWork,
)

__all__ = ["Rows", "StatementGenerator", "commit", "commit_async", "execute", "run", "run_async"]

T = TypeVar("T")


def run(generator: StatementGenerator[T], connection: Connection[Any]) -> T:
    """Run it in the transaction of the connection; returns what it returns."""
    try:
        wanted = next(generator)
        while True:
            meanwhile = wanted.work if isinstance(wanted, StatementsWithWork) else None
            wanted = generator.send(execute(connection, wanted, meanwhile))
    except StopIteration as done:
        value: T = done.value
        return value


async def run_async(generator: StatementGenerator[T], connection: AsyncConnection[Any]) -> T:
    try:
        wanted = next(generator)
        while True:
            wanted = generator.send(await _execute_async(connection, wanted))
    except StopIteration as done:
        value: T = done.value
        return value


def plain_connection() -> Connection[Any]:
    """psycopg's own connection under Django's, with the transaction that is open on it."""
    database.close_if_health_check_failed()  # as Django's own cursors do
    database.ensure_connection()
    plain: Connection[Any] = database.connection
    return plain


BEGIN: list[Statement] = [("BEGIN", ()), ("SET LOCAL lock_timeout = '5s'", ())]
COMMIT: list[Statement] = [("COMMIT", ())]


def commit(generator: StatementGenerator[T], connection: Connection[Any]) -> T:
    """Run it in a transaction of its own, on a connection in autocommit."""
    try:
        return run(in_transaction(generator), connection)
    except BaseException:
        if not connection.closed:  # else nothing is left of it, and that would be told instead
            connection.rollback()
        raise


async def commit_async(generator: StatementGenerator[T], connection: AsyncConnection[Any]) -> T:
    try:
        return await run_async(in_transaction(generator), connection)
    except BaseException:
        if not connection.closed:
            await connection.rollback()
        raise


def in_transaction(generator: StatementGenerator[T]) -> StatementGenerator[T]:
    """BEGIN travels with its first statements and COMMIT with the last, which saves two trips.

    Whoever runs it rolls back where it fails.
    """
    begun = committed = False
    rows: list[Rows] | None = None
    while True:
        try:
            wanted = next(generator) if rows is None else generator.send(rows)
        except StopIteration as done:
            if begun and not committed:
                yield COMMIT
            value: T = done.value
            return value
        leading = [] if begun else BEGIN
        begun, committed = True, isinstance(wanted, LastWrites)
        found = yield [*leading, *wanted, *(COMMIT if committed else [])]
        rows = found[len(leading) : len(leading) + len(wanted)]


def execute(
    connection: Connection[Any],
    wanted: Sequence[Statement],
    meanwhile: Callable[[], None] | None = None,
) -> list[Rows]:
    """Carry out statements in one go, and give their rows. `meanwhile` is done while PostgreSQL is
    at work, and must not ask it anything.
    """
    cursors = [Cursor(connection) for _ in wanted]
    try:
        if len(wanted) == 1 and meanwhile is None:
            cursors[0].execute(*wanted[0])
        else:
            with connection.pipeline():
                for cursor, (sql, values) in zip(cursors, wanted, strict=True):
                    cursor.execute(sql, values)
                if meanwhile is not None:
                    meanwhile()
    except STALE as changed:  # as `pools.HotConnection` says: Django's are others
        connection.close()
        raise SerializationFailure(PREPARED_EARLIER) from changed
    return [[] if cursor.rownumber is None else cursor.fetchall() for cursor in cursors]


async def _execute_async(connection: AsyncConnection[Any], wanted: list[Statement]) -> list[Rows]:
    cursors = [AsyncCursor(connection) for _ in wanted]
    if len(wanted) == 1:
        await cursors[0].execute(*wanted[0])
    else:
        async with connection.pipeline():
            for cursor, (sql, values) in zip(cursors, wanted, strict=True):
                await cursor.execute(sql, values)
    return [[] if cursor.rownumber is None else await cursor.fetchall() for cursor in cursors]
