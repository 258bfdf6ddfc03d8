"""Two ways to carry statements to PostgreSQL: on a waiting connection, and on an awaited one.

Statements that are yielded together travel together, in libpq's pipeline mode.
"""

import asyncio
from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor

from ledger.statements import LastWrites, Rows, Statement

__all__ = ["Rows", "Steps", "commit_async", "run", "run_async"]

T = TypeVar("T")
Steps = Generator[list[Statement], list[Rows], T]


def run(steps: Steps[T], connection: Connection[Any]) -> T:
    """Carry out all steps in the connection's transaction and return what they return."""
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(_execute(connection, wanted))
    except StopIteration as done:
        value: T = done.value
        return value


async def run_async(steps: Steps[T], connection: AsyncConnection[Any]) -> T:
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(await _execute_async(connection, wanted))
    except StopIteration as done:
        value: T = done.value
        return value


BEGIN: list[Statement] = [("BEGIN", ()), ("SET LOCAL lock_timeout = '5s'", ())]
COMMIT: list[Statement] = [("COMMIT", ())]


async def commit_async(
    steps: Steps[T], connection: AsyncConnection[Any], *, in_thread: bool = False
) -> T:
    """Carry out all steps in a transaction of their own, on a connection in autocommit.

    BEGIN travels with the first statements and COMMIT with the last, which saves two round trips.
    With `in_thread` the steps' own work, which is all computing, leaves the event loop alone.
    """
    committed = False
    rows: list[Rows] | None = None
    leading = BEGIN
    try:
        while True:
            wanted = await _advance(steps, rows, in_thread=in_thread)
            if not isinstance(wanted, list):
                if not committed and leading is not BEGIN:
                    await _execute_async(connection, COMMIT)
                value: T = wanted.value
                return value
            committed = isinstance(wanted, LastWrites)
            trailing = COMMIT if committed else []
            found = await _execute_async(connection, [*leading, *wanted, *trailing])
            rows = found[len(leading) : len(leading) + len(wanted)]
            leading = []
    except BaseException:
        await connection.rollback()
        raise


class Done(NamedTuple):
    value: Any


async def _advance(
    steps: Steps[Any], rows: list[Rows] | None, *, in_thread: bool
) -> list[Statement] | Done:
    def advance() -> list[Statement] | Done:
        try:
            return next(steps) if rows is None else steps.send(rows)
        except StopIteration as done:  # cannot cross a future
            return Done(done.value)

    return await asyncio.to_thread(advance) if in_thread else advance()


def _execute(connection: Connection[Any], wanted: list[Statement]) -> list[Rows]:
    cursors = [Cursor(connection) for _ in wanted]
    if len(wanted) == 1:
        cursors[0].execute(*wanted[0])
    else:
        with connection.pipeline():
            for cursor, (sql, values) in zip(cursors, wanted, strict=True):
                cursor.execute(sql, values)
    return [cursor.fetchall() if cursor.description else [] for cursor in cursors]


async def _execute_async(connection: AsyncConnection[Any], wanted: list[Statement]) -> list[Rows]:
    cursors = [AsyncCursor(connection) for _ in wanted]
    if len(wanted) == 1:
        await cursors[0].execute(*wanted[0])
    else:
        async with connection.pipeline():
            for cursor, (sql, values) in zip(cursors, wanted, strict=True):
                await cursor.execute(sql, values)
    return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]
