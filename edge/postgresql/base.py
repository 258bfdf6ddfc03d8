"""Connections of Django from its pool, of which one that is found dead speaks for all.

When PostgreSQL restarts or fails over, every idle connection is dead at once. The pool itself would
find that out one by one and sleep longer after each (psycopg_pool 3.3: 1, 2, 4 … seconds), so that
beyond three of them a request waited ten seconds and was refused. Here all are let go together, and
unasked: a host that vanished answers each question only by its silence, after twenty seconds.

A session that PostgreSQL ended, because its transaction had been idle or open for too long, is one
that went away like any other. So is one in which nothing can be written: after a failover its
server may be the other one's standby, and answer whatever else it is asked.
"""

from types import TracebackType
from typing import Any

from django.db.backends.postgresql import base
from django.db.utils import DatabaseErrorWrapper
from django.db.utils import OperationalError as DjangosOperationalError
from django.utils.functional import cached_property
from psycopg import OperationalError
from psycopg.errors import ReadOnlySqlTransaction
from psycopg_pool import ConnectionPool

from edge import pools


class Errors(DatabaseErrorWrapper):
    """Django's own, but for `pools.UNFIT`."""

    def __init__(self, connection: base.DatabaseWrapper) -> None:
        super().__init__(connection)
        self._connection = connection

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if isinstance(error, pools.UNFIT):
            self._connection.errors_occurred = True
            if isinstance(error, ReadOnlySqlTransaction):
                self._connection.close_at = 0.0  # it answers when it is asked whether it lives
                if self._connection.pool:
                    self._connection.pool.drain()
            raise DjangosOperationalError(*error.args).with_traceback(at) from error
        super().__exit__(kind, error, at)


class DatabaseWrapper(base.DatabaseWrapper):
    @cached_property
    def wrap_database_errors(self) -> Errors:
        return Errors(self)

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """A living one. The settings leave CONN_HEALTH_CHECKS off where there is a pool."""
        connection = super().get_new_connection(conn_params)
        if not self.pool:
            return connection
        try:
            ConnectionPool.check_connection(connection)
        except OperationalError:
            self.pool.putconn(connection)
            self.pool.drain()
            return super().get_new_connection(conn_params)
        return connection
