"""The hot door: what its handlers on every floor share. config/asgi.py routes to them.

A handler is a plain ASGI callable that stands in front of Django: no middleware, no session.
Checking the key, the limits and the answer are its own business.
"""

import re
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Handler = Callable[[Scope, Receive, Send], Awaitable[None]]
Pool = AsyncConnectionPool[AsyncConnection[TupleRow]]

# Requests beyond the pool wait this long for a connection, then are told to come back.
POOL_WAIT_SECONDS_MAX = 5.0
# How many may wait; one more is refused at once (PoolTimeout and TooManyRequests both mean 503).
POOL_WAITING_MAX = 2_000


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


class Pile(deque[Any]):
    """Lends the connection that came back last. Its server process has at hand what the last
    request needed; taken by turns, four of them push each other out of the processor's caches.
    """

    def popleft(self) -> Any:
        return self.pop()


_open: list[Pool] = []


async def open_pool(url: str, *, connections_max: int) -> Pool:
    """Open the pool of this process; connections commit each statement unless told otherwise."""
    pool: Pool = AsyncConnectionPool(
        url,
        min_size=min(4, connections_max),
        max_size=connections_max,
        max_waiting=POOL_WAITING_MAX,
        timeout=POOL_WAIT_SECONDS_MAX,
        max_lifetime=3600,
        kwargs={"autocommit": True, "application_name": "amends hot"},
        open=False,
        name="hot",
    )
    pool._pool = Pile()  # noqa: SLF001 - no option says so; the version is pinned
    await pool.open()
    _open.append(pool)
    return pool


async def close_pool() -> None:
    while _open:
        await _open.pop().close(timeout=2)


def pool() -> Pool:
    """The open pool; `async with pool().connection() as connection` borrows from it."""
    if not _open:
        raise Closed
    return _open[-1]


class Lent:
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
