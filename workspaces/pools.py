"""The hot door's pool: the connection that came back last is lent first.

A pool lends in turns, so that who asks once at a time meets another server process each time, whose
plans and catalogues have left the processor's caches by then. Here one connection stays at hand.
"""

import time
from typing import Any

from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

# Then another has its turn, and the pool looks how old this one is.
AT_HAND_SECONDS_MAX = 60.0


class Pool(AsyncConnectionPool[AsyncConnection[TupleRow]]):
    """A pool with one of its connections at hand: never while anybody waits for one."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._at_hand: AsyncConnection[TupleRow] | None = None
        self._until = 0.0
        self._asking = 0
        self._closing = False

    async def getconn(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - psycopg_pool's own
    ) -> AsyncConnection[TupleRow]:
        at_hand, self._at_hand = self._at_hand, None
        if at_hand is not None:
            return at_hand
        self._asking += 1
        try:
            return await super().getconn(timeout)
        finally:
            self._asking -= 1

    async def putconn(self, conn: AsyncConnection[TupleRow]) -> None:
        if not self._may_stay(conn):
            await super().putconn(conn)
        elif time.monotonic() < self._until:
            self._at_hand = conn
        else:
            self._until = time.monotonic() + AT_HAND_SECONDS_MAX
            await super().putconn(conn)

    def _may_stay(self, conn: AsyncConnection[TupleRow]) -> bool:
        return (
            self._at_hand is None
            and self._asking == 0
            and not (self.closed or self._closing)
            and conn.info.transaction_status is TransactionStatus.IDLE
        )

    async def check(self) -> None:
        await self._put_away()
        await super().check()

    async def close(self, timeout: float = 5.0) -> None:  # noqa: ASYNC109 - as above
        self._closing = True
        await self._put_away()
        await super().close(timeout)

    async def _put_away(self) -> None:
        at_hand, self._at_hand = self._at_hand, None
        if at_hand is not None:
            await super().putconn(at_hand)
