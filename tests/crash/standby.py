"""A standby of the tests' own PostgreSQL, which lags and then takes over."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psycopg

from config.local.places import private_folder
from config.local.postgres import OWNER, Postgres, way_to_run
from tests.crash.oracle import until

COPY_SECONDS_MAX = 120
CAUGHT_UP = """
SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn AND EXISTS (SELECT FROM pg_stat_wal_receiver)"""


class Standby:
    """Made by `pg_basebackup`, streaming from the primary until it is told to stop listening."""

    def __init__(self, primary: Postgres, home: Path) -> None:
        self.primary = primary
        private_folder(home)
        self.server = Postgres(home, durable=False, settings=primary.settings)
        self._copy(home)
        self.server.start()
        now = self._ask_primary("SELECT pg_current_wal_lsn()")
        until(lambda: self._ask(CAUGHT_UP, [now]), 60, "the standby has caught up")

    def _copy(self, home: Path) -> None:
        way = way_to_run(home)
        source = f"host={self.primary.sockets} user={OWNER}"
        command = [*way.before, str(way.binaries / "pg_basebackup"), "-d", source, "-R"]
        command += ["-D", str(self.server.data), "-X", "stream", "-c", "fast", "--no-sync"]
        subprocess.run(command, check=True, timeout=COPY_SECONDS_MAX, capture_output=True, cwd="/")

    def stop_listening(self) -> None:
        """From here on it lags, for whatever reason a network has."""
        self._ask("ALTER SYSTEM SET primary_conninfo = ''", fetch=False)
        self._ask("SELECT pg_reload_conf()")
        gone = "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)"
        until(lambda: self._ask(gone), 30, "the standby hears no more")

    def primary_dies(self) -> None:
        """At once, and what it had not passed on is gone with it."""
        os.kill(self.primary.pid or 0, signal.SIGQUIT)
        until(lambda: not self.primary.alive(), 20, "the primary is gone")

    def takes_over(self) -> Postgres:
        """It is promoted, and answers at the primary's place."""
        assert self._ask("SELECT pg_promote()")
        self.server.stop()
        self.server.sockets = self.primary.sockets
        self.server.start()
        return self.server

    def _ask(self, sql: str, values: list[object] | None = None, *, fetch: bool = True) -> Any:
        return ask(self.server, sql, values, fetch=fetch)

    def _ask_primary(self, sql: str) -> Any:
        return ask(self.primary, sql, None, fetch=True)


def ask(server: Postgres, sql: str, values: list[object] | None, *, fetch: bool) -> Any:
    with psycopg.connect(server.url("postgres"), autocommit=True) as session:
        found = session.execute(sql, values)
        row = found.fetchone() if fetch else None
        return row[0] if row else None
