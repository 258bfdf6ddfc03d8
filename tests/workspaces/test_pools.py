"""The hot door's pool keeps one connection at hand, and never from those who wait; what many ask in
one moment is asked once.
"""

import asyncio
import contextlib
from contextlib import nullcontext

import pytest
from django.conf import settings
from django.db import OperationalError, connection, transaction
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import (
    DataError,
    DivisionByZero,
    ReadOnlySqlTransaction,
    SerializationFailure,
)
from psycopg_pool import PoolTimeout, TooManyRequests
from psycopg_pool.base import AttemptWithBackoff

from config import settings as ours
from edge import pools
from ledger import drivers
from tests.proxy import Proxy
from tests.servers import as_runtime

pytestmark = pytest.mark.django_db(transaction=True)

CONNECTIONS = 3


def visit(story, connections_max=CONNECTIONS):
    async def talk():
        pool = await pools.open_pool(
            as_runtime(settings.DATABASE_URL), connections_max=connections_max
        )
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


ONE = ("SELECT one FROM shown", ())
# In a block, as psycopg forgets what it prepared where it alters a table itself.
CHANGED = "DO $$ BEGIN ALTER TABLE shown ALTER one TYPE text; END $$"
GONE = "DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$"


def shown():
    """As the ledger records: its statements travel together, in a transaction of their own."""
    yield [ONE, ("SELECT 1", ())]


@pytest.mark.parametrize("changed", [CHANGED, GONE], ids=["changed", "gone"])
def test_what_was_prepared_before_a_migration_fails_no_longer_than_once(changed):
    async def story(pool):
        async with pools.AutocommitConnection() as connection:
            stale = connection.info.backend_pid
            await connection.execute("CREATE TEMP TABLE shown AS SELECT 1 AS one")
            for _ in range(3):
                await connection.execute(*ONE)
            await connection.execute(changed)
            with pytest.raises(SerializationFailure, match="earlier schema"):
                await connection.execute(*ONE)
        async with pool.connection() as connection:
            await connection.execute("CREATE TEMP TABLE shown AS SELECT 1 AS one")
            for _ in range(3):
                await drivers.commit_async(shown(), connection)
            await connection.execute(changed)
            with pytest.raises(SerializationFailure, match="earlier schema"):
                await drivers.commit_async(shown(), connection)
        return stale, await in_a_row(10)

    stale, asked = visit(story)

    assert stale not in asked


@pytest.mark.parametrize("changed", [CHANGED, GONE], ids=["changed", "gone"])
@pytest.mark.parametrize("alone", [False, True])
def test_nor_does_it_fail_a_thread(alone, changed):
    """Large batches and traces are recorded there."""

    def ask(connection):
        return connection.execute(*ONE) if alone else drivers.commit(shown(), connection)

    async def story(_pool):
        with pools.threads_pool().connection() as connection:
            connection.execute("CREATE TEMP TABLE shown AS SELECT 1 AS one")
            for _ in range(3):
                ask(connection)
            connection.execute(changed)
            with pytest.raises(SerializationFailure, match="earlier schema"):
                ask(connection)
        with pools.threads_pool().connection() as connection:
            return connection.execute("SELECT to_regclass('pg_temp.shown')").fetchone()

    assert visit(story, connections_max=1) == (None,)


@pytest.mark.parametrize("changed", [CHANGED, GONE], ids=["changed", "gone"])
@pytest.mark.parametrize("alone", [False, True])
def test_nor_the_gate_or_the_engine_on_djangos_connection(alone, changed):
    """The gate answered 500, and people were told that the desk itself had failed at a plan."""

    def ask():
        with nullcontext() if alone else transaction.atomic(), connection.wrap_database_errors:
            return drivers.execute(drivers.plain_connection(), [ONE])

    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMP TABLE shown AS SELECT 1 AS one")
        for _ in range(3):
            ask()
        cursor.execute(changed)
    with pytest.raises(OperationalError, match="earlier schema"):
        ask()

    connection.close_if_unusable_or_obsolete()
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('pg_temp.shown')")
        assert cursor.fetchone() == (None,)


def test_a_dead_connection_at_hand_is_found_by_a_check():
    async def story(pool):
        *_, dead = await in_a_row(3)
        async with await AsyncConnection.connect(settings.DATABASE_URL) as killer:
            await killer.execute("SELECT pg_terminate_backend(%s)", [dead])
        await pool.check()
        return dead, await process_asked()

    dead, alive = visit(story)

    assert dead != alive


def test_a_pool_is_there_again_with_its_database_however_long_that_was_away(monkeypatch):
    """It looks after one second, two, four …, and was away for as long again."""
    monkeypatch.setattr(AttemptWithBackoff, "INITIAL_DELAY", 3600.0)
    monkeypatch.setattr(pools, "RECONNECT_SECONDS", 0.5)
    monkeypatch.setattr(pools, "POOL_WAIT_SECONDS_MAX", 1.0)

    async def in_loop():
        async with pools.pool().connection() as one:
            await one.execute("SELECT 1")

    def in_thread():
        with pools.threads_pool().connection() as one:
            one.execute("SELECT 1")

    async def answers(ask):
        try:
            await ask()
        except (*pools.AWAY, PoolTimeout) as away:
            await pools.pool().heal(away)
            return False
        return True

    async def story(proxy, there, url):
        asks = [in_loop, lambda: asyncio.to_thread(in_thread)]
        await pools.open_pool(url, connections_max=1)
        found = [await answers(ask) for ask in asks]
        proxy.to = "/nowhere"
        proxy.cut()
        found += [await answers(ask) for ask in asks * 2]
        proxy.to = there
        async with asyncio.timeout(10):
            for ask in asks:
                while not await answers(ask):
                    pass
        await pools.close_pool()
        return found

    given = conninfo_to_dict(settings.DATABASE_URL)
    there = f"{given['host']}/.s.PGSQL.{given.get('port') or 5432}"
    with Proxy(there) as proxy:
        url = make_conninfo(as_runtime(settings.DATABASE_URL), host="127.0.0.1", port=proxy.port)
        assert asyncio.run(story(proxy, there, url)) == [True] * 2 + [False] * 4
    monkeypatch.setattr(ours, "PROCESS", "web")
    of_django = ours.database("DATABASE_URL", settings.DATABASE_URL)["OPTIONS"]["pool"]
    assert of_django["reconnect_timeout"] <= of_django["timeout"]


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


def test_a_session_in_which_nothing_can_be_written_is_let_go_and_the_next_one_writes():
    """Its server was the primary and is the standby; or it took no writes for a while, and sessions
    of then go on so for an hour.
    """
    beside = connection.copy()
    with beside.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
        with pytest.raises(OperationalError, match="read-only"):
            cursor.execute("CREATE TABLE written ()")
    beside.close_if_unusable_or_obsolete()  # as after each request, task and turn of a job

    with beside.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE written ()")
    beside.close()


def test_nor_do_the_pools_of_the_door_keep_others_like_it():
    """Nor one that was lent meanwhile, which was at hand for a minute; nor one for threads."""

    async def story(pool):
        lent = await pool.getconn()
        async with pool.connection() as one, pool.connection() as other:
            for each in (one, other, lent):
                await each.execute("SET default_transaction_read_only = on")
        with pools.threads_pool().connection() as in_thread:
            in_thread.execute("SET default_transaction_read_only = on")
        with pytest.raises(ReadOnlySqlTransaction) as refused:
            async with pool.connection() as one:
                await one.execute("CREATE TABLE written ()")

        await pool.heal(refused.value)
        await pool.putconn(lent)

        found = []
        for _ in range(3):
            async with pool.connection() as one:
                cursor = await one.execute("SHOW transaction_read_only")
                found.append(await cursor.fetchone())
        with pools.threads_pool().connection() as in_thread:
            return [*found, in_thread.execute("SHOW transaction_read_only").fetchone()]

    assert visit(story) == [("off",)] * 4


def together(story):
    """What `story(ask, asked)` gives: `asked` has the keys of each statement, and a key `no` fails
    it.
    """
    asked = []

    async def look_up(keys):
        asked.append(keys)
        await asyncio.sleep(0)
        if "no" in keys:
            raise OperationalError("away")
        if any("\0" in key for key in keys):
            raise DataError("PostgreSQL text fields cannot contain NUL")
        return {key: key.upper() for key in keys if key != "unknown"}

    return asyncio.run(story(pools.Together(look_up).ask, asked))


def test_what_many_ask_while_one_is_answered_is_asked_once_and_then():
    async def story(ask, asked):
        return await asyncio.gather(*map(ask, ("a", "b", "a", "b", "unknown"))), asked

    said, asked = together(story)

    assert said == ["A", "B", "A", "B", None]
    assert asked == [["a"], ["b", "a", "unknown"]]


def test_of_many_so_many_are_asked_for_at_once(monkeypatch):
    monkeypatch.setattr(pools, "TOGETHER_MAX", 2)

    async def story(ask, asked):
        return await asyncio.gather(*map(ask, "abcd")), asked

    assert together(story) == (["A", "B", "C", "D"], [["a"], ["b", "c"], ["d"]])


def test_groups_do_not_wait_for_each_other():
    async def story(ask, asked):
        return await asyncio.gather(ask("a", 1), ask("b", 2)), asked

    assert together(story) == (["A", "B"], [["a"], ["b"]])


def test_who_asks_together_with_what_fails_hears_so_and_the_next_are_answered():
    async def story(ask, _asked):
        said = await asyncio.gather(*map(ask, ("a", "no", "b")), return_exceptions=True)
        return [one if isinstance(one, str) else type(one) for one in said], await ask("b")

    assert together(story) == (["A", OperationalError, OperationalError], "B")


def test_what_cannot_be_read_fails_whoever_asked_with_it_alone():
    """It failed all who asked in that moment."""

    async def story(ask, asked):
        keys = ("a", "b", "\0", "\0", "c", "d")
        said = await asyncio.gather(*map(ask, keys), return_exceptions=True)
        return [one if isinstance(one, str) else type(one) for one in said], await ask("e"), asked

    said, later, asked = together(story)
    assert said == ["A", "B", DataError, DataError, "C", "D"]
    assert (later, max(map(len, asked))) == ("E", 4)


def test_who_goes_away_takes_nobody_along():
    async def story(ask, asked):
        first, second, stays = (asyncio.create_task(ask(key)) for key in "abc")
        await asyncio.sleep(0)
        first.cancel()
        second.cancel()
        return await stays, asked

    assert together(story) == ("C", [["a"], ["c"]])


@pytest.mark.parametrize("steps", range(6))
def test_where_all_tasks_were_ended_whoever_asks_next_is_answered(steps):
    async def story(ask, _asked):
        waiting = [asyncio.create_task(ask(key)) for key in "abc"]
        for _ in range(steps):
            await asyncio.sleep(0)
        ended = asyncio.all_tasks() - {asyncio.current_task()}
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)
        assert all(one.done() for one in waiting)
        return await ask("d")

    assert together(story) == "D"


def test_more_than_may_wait_are_turned_away(monkeypatch):
    monkeypatch.setattr(pools, "POOL_WAITING_MAX", 2)

    async def story(ask, _asked):
        said = await asyncio.gather(*map(ask, "abcd"), return_exceptions=True)
        return [one if isinstance(one, str) else type(one) for one in said]

    assert together(story) == ["A", "B", "C", TooManyRequests]
