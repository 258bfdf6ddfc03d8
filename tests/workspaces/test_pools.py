"""The hot door's pool keeps one connection at hand, and never from those who wait."""

import asyncio
import contextlib

import pytest
from django.conf import settings
from django.db import OperationalError, connection
from psycopg import AsyncConnection
from psycopg.errors import DivisionByZero

from edge import pools

pytestmark = pytest.mark.django_db(transaction=True)

CONNECTIONS = 3


def visit(story, connections_max=CONNECTIONS):
    async def talk():
        pool = await pools.open_pool(settings.DATABASE_URL, connections_max=connections_max)
        try:
            await pool.wait()
            return await story(pool)
        finally:
            await pools.close_pool()

    return asyncio.run(talk())


async def process_asked():
    async with pools.AutocommitConnection() as connection:
        await connection.execute("SELECT 1")
        return connection.info.backend_pid


async def in_a_row(times):
    return [await process_asked() for _ in range(times)]


def test_who_asks_once_at_a_time_meets_the_same_process_again():
    async def story(_pool):
        await process_asked()
        return await in_a_row(10)

    assert len(set(visit(story))) == 1


def test_in_time_every_connection_has_its_turn(monkeypatch):
    monkeypatch.setattr(pools, "AT_HAND_SECONDS_MAX", 0.0)

    async def story(_pool):
        return await in_a_row(10)

    assert len(set(visit(story))) == CONNECTIONS


def test_whoever_waits_gets_what_comes_back():
    async def story(pool):
        await in_a_row(2)
        async with pool.connection():
            waiting = [asyncio.create_task(process_asked()) for _ in range(20)]
            await asyncio.sleep(0)
        return await asyncio.gather(*waiting)

    assert len(visit(story, connections_max=1)) == 20


def test_the_one_at_hand_is_one_of_all():
    async def story(pool):
        await in_a_row(2)
        async with contextlib.AsyncExitStack() as taken:
            return [await taken.enter_async_context(pool.connection()) for _ in range(CONNECTIONS)]

    assert len(set(visit(story))) == CONNECTIONS


def test_a_connection_in_a_transaction_is_not_kept_at_hand():
    async def story(pool):
        await in_a_row(2)
        async with pools.AutocommitConnection() as connection:
            await connection.execute("BEGIN")
            in_transaction = connection
        async with pools.AutocommitConnection() as connection:
            return connection is in_transaction, connection.info.transaction_status.name

    assert visit(story) == (False, "IDLE")


def test_a_long_statement_has_its_cursor_again_and_one_that_failed_is_executed_anew(monkeypatch):
    halved, doubled = (pools.numbered(f"SELECT %b::text, 12 {sign} %b::bigint") for sign in "/*")
    monkeypatch.setattr(pools, "CURSORS_MAX", 2)

    async def story(_pool):
        async with pools.AutocommitConnection() as connection:
            cursors = [await connection.execute_raw(halved, ["a", 2])]
            rows = [await cursors[0].fetchone()]
            with pytest.raises(DivisionByZero):
                await connection.execute_raw(halved, [None, 0])
            for sql, values in ((halved, ["b", 3]), (doubled, ["c", 2**40]), (halved, [None, 4])):
                cursors.append(await connection.execute_raw(sql, values))
                rows += await cursors[-1].fetchall()
            await connection.execute_raw("SELECT 3", [])
        return rows, [one is cursors[0] for one in cursors], len(connection._cursors)

    rows, are_the_first, kept = visit(story)
    assert rows == [("a", 6), ("b", 4), ("c", 12 * 2**40), (None, 3)]
    assert are_the_first == [True, True, False, True]
    assert kept == 1


def test_a_dead_connection_at_hand_is_found_by_a_check():
    async def story(pool):
        *_, dead = await in_a_row(3)
        async with await AsyncConnection.connect(settings.DATABASE_URL) as killer:
            await killer.execute("SELECT pg_terminate_backend(%s)", [dead])
        await pool.check()
        return dead, await process_asked()

    dead, alive = visit(story)

    assert dead != alive


def test_a_session_that_was_ended_in_its_transaction_is_one_that_went_away():
    """The process stood still; PostgreSQL let go what it held."""
    stood_still = connection.copy()
    with stood_still.cursor() as cursor:
        cursor.execute("SET idle_in_transaction_session_timeout = 50")
        cursor.execute("SELECT pg_backend_pid()")
        [pid] = cursor.fetchone()
    stood_still.set_autocommit(False)
    with stood_still.cursor() as cursor:
        cursor.execute("SELECT 1")
        living = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
        with connection.cursor() as other:
            while other.execute(living, [pid]).fetchone() != (0,):
                pass

        with pytest.raises(OperationalError, match="idle-in-transaction"):
            cursor.execute("SELECT 1")
    stood_still.close()
