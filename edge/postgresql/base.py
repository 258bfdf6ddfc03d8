"""Connections of Django from its pool, of which one that is found dead speaks for all.

When PostgreSQL restarts or fails over, every idle connection is dead at once. The pool itself would
find that out one by one and sleep longer after each (psycopg_pool 3.3: 1, 2, 4 … seconds), so that
beyond three of them a request waited ten seconds and was refused. Here all are let go together, and
unasked: a host that vanished answers each question only by its silence, after twenty seconds.
"""

from typing import Any

from django.db.backends.postgresql import base
from psycopg import OperationalError
from psycopg_pool import ConnectionPool


class DatabaseWrapper(base.DatabaseWrapper):
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
