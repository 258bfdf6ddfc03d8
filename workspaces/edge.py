"""The hot door: what its handlers on every floor share. config/asgi.py routes to them.

A handler is a plain ASGI callable that stands in front of Django: no middleware, no session.
Checking the key, the limits and the answer are its own business.
"""

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import msgspec
from psycopg import AsyncConnection, Connection
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool, TooManyRequests

from workspaces import sockets
from workspaces.pools import Pool

# Types of msgspec that several threads read, described before the first of them does.
#
# msgspec works out how a Struct is read when it is first needed, running Python code on the way. A
# second thread that comes to the same type meanwhile finds the description half made and ends the
# whole process with a segmentation fault (msgspec 0.22; batches of events from four clients that
# hit a fresh web process did).

_one_at_a_time = threading.Lock()


def described(*types: type[msgspec.Struct]) -> None:
    """Work the types out now. Whoever makes a type that threads will share calls this at once."""
    with _one_at_a_time:
        for one in types:
            msgspec.json.Decoder(one)


T = TypeVar("T")
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Handler = Callable[[Scope, Receive, Send], Awaitable[None]]
ThreadsPool = ConnectionPool[Connection[TupleRow]]

# Requests beyond the pool wait this long for a connection, then are told to come back.
POOL_WAIT_SECONDS_MAX = 5.0
# How many may wait; one more is refused at once (PoolTimeout and TooManyRequests both mean 503).
POOL_WAITING_MAX = 2_000

# What computes much works in threads, this many at once, beside those who wait on the loop; more
# wait for one of them, and beyond that are told to come back.
THREADS_MAX = 4
THREADS_WAITING_MAX = 200


class Route(NamedTuple):
    """`path` is a regular expression for the whole path; its groups arrive in `path_params`."""

    method: str
    path: "re.Pattern[str]"
    handler: Handler


def route(method: str, path: str, handler: Handler) -> Route:
    return Route(method, re.compile(path), handler)


class PassOn(Exception):
    """We stopped because this request is not for the hot door: Django answers it. Nothing of the
    body may have been read, and nothing sent.
    """


class Closed(Exception):
    """The pool was asked for outside the life of the web process; a handler is served too early."""


_open: list[Pool] = []
_open_for_threads: list[ThreadsPool] = []

# Connections commit each statement unless told otherwise.
KEPT = {"autocommit": True, "application_name": "amends hot"}


async def open_pool(url: str, *, connections_max: int) -> Pool:
    """Open the pools of this process: this one, and that of its threads."""
    pool = Pool(
        sockets.postgres(url),
        min_size=min(4, connections_max),
        max_size=connections_max,
        max_waiting=POOL_WAITING_MAX,
        timeout=POOL_WAIT_SECONDS_MAX,
        max_lifetime=3600,
        kwargs=KEPT,
        open=False,
        name="hot",
    )
    await pool.open()
    _open.append(pool)
    open_threads_pool(url, connections_max=min(THREADS_MAX, connections_max))
    return pool


def open_threads_pool(url: str, *, connections_max: int) -> None:
    """Open connections for functions that wait for them; none before the first is needed."""
    threads: ThreadsPool = ConnectionPool(
        sockets.postgres(url),
        min_size=0,
        max_size=connections_max,
        timeout=POOL_WAIT_SECONDS_MAX,
        max_lifetime=3600,
        kwargs=KEPT,
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
    """`async with Lent() as connection`: for one statement that commits itself.

    `pool().connection()` also ends the transaction of whoever borrowed; where there is none, that
    and its generator cost as much as asking does.
    """

    __slots__ = ("_connection", "_pool")

    async def __aenter__(self) -> AsyncConnection[TupleRow]:
        self._pool = pool()
        self._connection = await self._pool.getconn()
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        await self._pool.putconn(self._connection)


def threads_pool() -> ThreadsPool:
    """Its counterpart for threads, with connections of its own."""
    if not _open_for_threads:
        raise Closed
    return _open_for_threads[-1]


class _Threads:
    """A few threads, and how many calls they have or wait for them."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="hot")
        self._calls = 0

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        if self._calls >= THREADS_WAITING_MAX:
            raise TooManyRequests("too many calls wait for a thread")
        self._calls += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, function, *args)
        finally:
            self._calls -= 1


in_thread = _Threads().call
"""Await a function that computes much, or waits for a connection of `threads_pool`."""
