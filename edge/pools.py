"""The connections and the threads of a web process, and what its threads share.

The connection that came back last is lent first. A pool lends in turns, so that who asks once at a
time meets another server process each time, whose plans and catalogues have left the processor's
caches by then. Here one connection stays at hand.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from psycopg import AsyncConnection, AsyncRawCursor, Connection, OperationalError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import (
    DataError,
    FeatureNotSupported,
    IdleInTransactionSessionTimeout,
    InvalidSqlStatementName,
    ReadOnlySqlTransaction,
    SerializationFailure,
    TransactionTimeout,
)
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, ConnectionPool, TooManyRequests

from edge import sockets

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)

# Requests beyond the pool wait this long for a connection, then are told to come back.
POOL_WAIT_SECONDS_MAX = 5.0
# So long a pool seeks a lost connection by itself, with pauses that double; then whoever asks for
# one has it sought anew. Else the pool is away for as long again as its database was.
RECONNECT_SECONDS = POOL_WAIT_SECONDS_MAX
# How many may wait; one more is refused at once (PoolTimeout and TooManyRequests both mean 503).
POOL_WAITING_MAX = 2_000

# What computes much works in threads, this many at once, beside those who wait on the loop; more
# wait for one of them, and beyond that are told to come back.
THREADS_MAX = 4
THREADS_WAITING_MAX = 200
# So long the same connection is lent. Then another has its turn, and the pool looks how old this
# one is.
AT_HAND_SECONDS_MAX = 60.0
TOGETHER_MAX = 200
"""Questions in one statement: some are answered before all are."""
UNREADABLE = (DataError, ValueError)
"""What one value raises that cannot be sent, or is none of its type: NUL, half a pair, no date."""
NUMBERED_MAX = 1_000  # statements kept as PostgreSQL spells their parameters
CURSORS_MAX = 50  # of one connection, each with the rows that it found last
PREPARED_EARLIER = "it was prepared for an earlier schema, or is taken for prepared and is not"
STALE = (FeatureNotSupported, InvalidSqlStatementName)
"""What a statement fails with that is not prepared as psycopg thinks. It also believes that of one
which it sent behind another that failed (3.3, in a pipeline whose transaction was not begun)."""
UNFIT = (IdleInTransactionSessionTimeout, ReadOnlySqlTransaction, TransactionTimeout)
"""A session that PostgreSQL ended, or in which nothing can be written (any more): psycopg has these
among the errors of nobody but PostgreSQL."""
AWAY = (OperationalError, *UNFIT)
"""The database is away, or its session leads to none in which anybody can work."""
ALL_ANEW_SECONDS = 1.0
"""Between two times that a pool connects anew as a whole."""


class ThreadsConnection(Connection[TupleRow]):
    """A connection for threads: of statements that were prepared as `HotConnection` says."""

    def wait(self, *given: Any, **options: Any) -> Any:
        try:
            return super().wait(*given, **options)
        except STALE as changed:
            self.close()
            raise SerializationFailure(PREPARED_EARLIER) from changed


ThreadsPool = ConnectionPool[ThreadsConnection]


class HotConnection(AsyncConnection[TupleRow]):
    """A connection that keeps a cursor for each of its `numbered` statements: a new one copies
    psycopg's tables, and looks up in them for each value how its kind is written.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._cursors: dict[str, AsyncRawCursor[TupleRow]] = {}
        self.made_at = time.monotonic()

    async def wait(self, *given: Any, **options: Any) -> Any:
        """A statement that was prepared before a migration changed a column that it answers fails
        here for good, as all that is `STALE`: another connection prepares it anew, and whoever
        asked asks again.
        """
        try:
            return await super().wait(*given, **options)
        except STALE as changed:
            await self.close()
            raise SerializationFailure(PREPARED_EARLIER) from changed

    async def execute_raw(self, sql: str, values: Sequence[Any]) -> AsyncRawCursor[TupleRow]:
        """Execute a long statement that is `numbered`: psycopg reads one of more than fifty
        parameters or four thousand characters anew each time, which took as long as sending it.
        The rows are there until it is executed again.
        """
        cursor = self._cursors.get(sql)
        if cursor is None:
            if len(self._cursors) >= CURSORS_MAX:
                self._cursors.clear()
            cursor = self._cursors[sql] = AsyncRawCursor(self)
        return await cursor.execute(sql, values)


class Pool(AsyncConnectionPool[HotConnection]):
    """A pool with one of its connections at hand: never while anybody waits for one."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, connection_class=HotConnection, **options)
        self._at_hand: HotConnection | None = None
        self._until = 0.0
        self._asking = 0
        self._closing = False
        self._anew_at = 0.0

    async def getconn(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - psycopg_pool's own
    ) -> HotConnection:
        at_hand, self._at_hand = self._at_hand, None
        if at_hand is not None:
            return at_hand
        self._asking += 1
        try:
            return await super().getconn(timeout)
        finally:
            self._asking -= 1

    async def putconn(self, conn: HotConnection) -> None:
        if not self._may_stay(conn):
            await super().putconn(conn)
        elif time.monotonic() < self._until:
            self._at_hand = conn
        else:
            self._until = time.monotonic() + AT_HAND_SECONDS_MAX
            await super().putconn(conn)

    def _may_stay(self, conn: HotConnection) -> bool:
        return (
            self._at_hand is None
            and self._asking == 0
            and not (self.closed or self._closing)
            and conn.pgconn.transaction_status == TransactionStatus.IDLE
            and conn.made_at > self._anew_at
        )

    async def check(self) -> None:
        await self._put_away()
        await super().check()

    async def heal(self, error: Exception) -> None:
        """Let go the connections that are dead, too, where one of them failed so; of those for
        threads all. Where one writes no longer all are let go, and whatever is lent as it comes
        back: their server is another one's standby by now, or takes no writes for sessions that are
        as old, and answers every other question.
        """
        if not isinstance(error, ReadOnlySqlTransaction):
            threads_pool().drain()
            await self.check()
        elif time.monotonic() > self._anew_at + ALL_ANEW_SECONDS:
            self._anew_at = time.monotonic()
            threads_pool().drain()
            await self._put_away()
            await self.drain()

    async def close(self, timeout: float = 5.0) -> None:  # noqa: ASYNC109 - as above
        self._closing = True
        await self._put_away()
        await super().close(timeout)

    async def _put_away(self) -> None:
        at_hand, self._at_hand = self._at_hand, None
        if at_hand is not None:
            await super().putconn(at_hand)


class Closed(Exception):
    """The pool was asked for outside the life of the web process; a handler is served too early."""


_open: list[Pool] = []
_open_for_threads: list[ThreadsPool] = []

# Connections commit each statement unless told otherwise.
KEPT = {"autocommit": True, "application_name": "amends hot"}


async def open_pool(
    url: str, *, connections_max: int, prepare_after: int | None = 2, options: str = ""
) -> Pool:
    """Open the pools of this process: this one, and that of its threads. A statement is prepared
    from its `prepare_after`th use on; `options` are libpq's, beside those of the URL.
    """
    kept = KEPT | {"prepare_threshold": prepare_after}
    if options:
        url = make_conninfo(url, options=f"{conninfo_to_dict(url).get('options', '')} {options}")
    pool = Pool(
        sockets.postgres(url),
        min_size=min(4, connections_max),
        max_size=connections_max,
        max_waiting=POOL_WAITING_MAX,
        timeout=POOL_WAIT_SECONDS_MAX,
        max_lifetime=3600,
        reconnect_timeout=RECONNECT_SECONDS,
        kwargs=kept,
        open=False,
        name="hot",
    )
    await pool.open()
    _open.append(pool)
    open_threads_pool(
        url, connections_max=min(THREADS_MAX, connections_max), prepare_after=prepare_after
    )
    return pool


def open_threads_pool(url: str, *, connections_max: int, prepare_after: int | None) -> None:
    """Open connections for functions that wait for them; none before the first is needed."""
    threads: ThreadsPool = ConnectionPool(
        sockets.postgres(url),
        connection_class=ThreadsConnection,
        min_size=0,
        max_size=connections_max,
        timeout=POOL_WAIT_SECONDS_MAX,
        max_lifetime=3600,
        reconnect_timeout=RECONNECT_SECONDS,
        kwargs=KEPT | {"prepare_threshold": prepare_after},
        open=False,
        name="hot threads",
    )
    threads.open()
    _open_for_threads.append(threads)


async def close_pool() -> None:
    while _open:
        await _open.pop().close(timeout=2)
    while _open_for_threads:
        await asyncio.to_thread(_open_for_threads.pop().close, 2)


def pool() -> Pool:
    """The open pool; `async with pool().connection() as connection` borrows from it."""
    if not _open:
        raise Closed
    return _open[-1]


class AutocommitConnection:
    """`async with AutocommitConnection() as connection`: for one statement that commits itself.

    `pool().connection()` also ends the transaction of whoever borrowed; where there is none, that
    and its generator cost as much as asking does.
    """

    __slots__ = ("_connection", "_pool")

    async def __aenter__(self) -> HotConnection:
        self._pool = pool()
        self._connection = await self._pool.getconn()
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        await self._pool.putconn(self._connection)


@lru_cache(maxsize=NUMBERED_MAX)
def numbered(sql: str) -> str:
    """The statement with PostgreSQL's own `$1`, `$2`, … for each `%b`, for
    `HotConnection.execute_raw`.
    """
    first, *others = sql.split("%b")
    return first + "".join(f"${n}{part}" for n, part in enumerate(others, 1))


class _Asked(NamedTuple):
    key: Any
    found: asyncio.Future[Any]


class Together(Generic[Key, T]):
    """Questions that many have in one moment, by one statement for all of them: a thousand agents
    come back at once, and two hundred consoles after something held them up.

    Who asks alone is answered as without this. Who asks while a statement is under way waits for
    the next one, with all who do: each hears what stood after they asked. `look_up` is given the
    keys, each once, and says what it found of each. Those of different `group`s do not wait for
    each other. A key that PostgreSQL cannot read fails whoever asked with it, and nobody beside.
    """

    def __init__(self, look_up: Callable[[list[Key]], Awaitable[Mapping[Key, T]]]) -> None:
        self._look_up = look_up
        self._waiting: dict[Hashable, list[_Asked]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, key: Key, group: Hashable = None) -> T | None:
        """What was found of `key`, or None; raises what `look_up` raises, or TooManyRequests."""
        waiting = self._waiting.get(group)
        if waiting is None:
            self._waiting[group] = []
            try:
                return (await self._look_up([key])).get(key)
            finally:
                self._go_on(group)
        if len(waiting) >= POOL_WAITING_MAX:
            raise TooManyRequests("too many ask the same")
        asked = _Asked(key, asyncio.get_running_loop().create_future())
        waiting.append(asked)
        found: T | None = await asked.found
        return found

    def _go_on(self, group: Hashable) -> None:
        """No statement of the group is under way: begin the one for those who asked meanwhile."""
        waiting = [one for one in self._waiting.pop(group) if not one.found.done()]
        if not waiting:
            return
        now, self._waiting[group] = waiting[:TOGETHER_MAX], waiting[TOGETHER_MAX:]

        def over(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled():
                self._go_on(group)
                return
            for one in [*now, *self._waiting.pop(group)]:  # this process ends
                one.found.cancel()

        task = asyncio.create_task(self._answer(now))
        self._tasks.add(task)
        task.add_done_callback(over)

    async def _answer(self, asked: list[_Asked]) -> None:
        keys = list(dict.fromkeys(one.key for one in asked))
        try:
            told = await self._look_up(keys)
        except Exception as error:  # noqa: BLE001 - each of them hears it
            if len(keys) > 1 and isinstance(error, UNREADABLE):
                half = set(keys[: len(keys) // 2])
                await self._answer([one for one in asked if one.key in half])
                await self._answer([one for one in asked if one.key not in half])
                return
            for one in asked:
                if not one.found.done():
                    one.found.set_exception(error)
            return
        for one in asked:
            if not one.found.done():
                one.found.set_result(told.get(one.key))


def threads_pool() -> ThreadsPool:
    """Its counterpart for threads, with connections of its own."""
    if not _open_for_threads:
        raise Closed
    return _open_for_threads[-1]


class Threads:
    """A few threads, and how many calls they have or wait for them."""

    def __init__(self, name: str, *, threads_max: int, waiting_max: int) -> None:
        self._threads = ThreadPoolExecutor(threads_max, thread_name_prefix=name)
        self.waiting_max = waiting_max
        self._calls = 0

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        if self._calls >= self.waiting_max:
            raise TooManyRequests("too many calls wait for a thread")
        self._calls += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, function, *args)
        finally:
            self._calls -= 1


threads = Threads("hot", threads_max=THREADS_MAX, waiting_max=THREADS_WAITING_MAX)
in_thread = threads.call
"""Await a function that computes much, or waits for a connection of `threads_pool`."""


# Types of msgspec that several threads read, described before the first of them does.
#
# msgspec works out how a Struct is read when it is first needed, running Python code on the way. A
# second thread that comes to the same type meanwhile finds the description half made and ends the
# whole process with a segmentation fault (msgspec 0.22; batches of events from four clients that
# hit a fresh web process did).

_one_at_a_time = threading.Lock()


def describe_types(*types: type[msgspec.Struct]) -> None:
    """Work the types out now. Whoever makes a type that threads will share calls this at once."""
    with _one_at_a_time:
        for one in types:
            msgspec.json.Decoder(one)
