"""Where a service remembers which keys it has begun and how they ended."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from dataclasses import dataclass
from typing import Any, Protocol

from amends import forks

# Longer than a ledger keeps keys, so that no undo is ever repeated because it was forgotten.
KEEP_SECONDS = 400 * 24 * 3600


@dataclass(frozen=True)
class KeyRow:
    """What is known of a key: the digest of what was asked, and the answer once there is one."""

    asked: str
    answer: dict[str, Any] | None


class KeyStore(Protocol):
    """What `Twins` needs of a store. Each method must be durable when it returns."""

    def start(self, key: str, asked: str) -> KeyRow | None:
        """Note that this key begins, and return None; or the row that is already there."""

    def find(self, key: str) -> KeyRow | None:
        """The row of a key, or None if it never began."""

    def finish(self, key: str, answer: dict[str, Any]) -> None:
        """Note how it ended."""

    def forget(self, key: str) -> None:
        """Drop a key of which it is certain that nothing happened, so that it may be tried anew."""


class SqliteKeys:
    """The default store: one SQLite file, for all processes of a service on one machine."""

    def __init__(self, path: str) -> None:
        self._path, self._lock = path, threading.Lock()
        self._database = self._open()
        forks.tell(self)

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(
            self._path, isolation_level=None, check_same_thread=False, timeout=10
        )
        database.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
            "CREATE TABLE IF NOT EXISTS keys (key TEXT PRIMARY KEY, asked TEXT NOT NULL,"
            " answer TEXT, began REAL NOT NULL);"
        )
        return database

    def before_fork(self) -> None:
        """A server that loads the service and then forks its workers: each opens the file anew."""
        self._lock.acquire()
        self._database.close()

    def after_fork(self) -> None:
        self._database = self._open()
        self._lock.release()

    def born_of_fork(self) -> None:
        self._lock = threading.Lock()
        self._database = self._open()

    def start(self, key: str, asked: str) -> KeyRow | None:
        now = time.time()
        with self._lock:
            self._database.execute(
                "DELETE FROM keys WHERE began < ? AND answer IS NOT NULL", [now - KEEP_SECONDS]
            )
            added = self._database.execute(
                "INSERT INTO keys (key, asked, began) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                [key, asked, now],
            )
        return None if added.rowcount else self.find(key)

    def find(self, key: str) -> KeyRow | None:
        with self._lock:
            row = self._database.execute(
                "SELECT asked, answer FROM keys WHERE key = ?", [key]
            ).fetchone()
        return KeyRow(row[0], json.loads(row[1]) if row[1] else None) if row else None

    def finish(self, key: str, answer: dict[str, Any]) -> None:
        with self._lock:
            self._database.execute(
                "UPDATE keys SET answer = ? WHERE key = ?", [json.dumps(answer), key]
            )

    def forget(self, key: str) -> None:
        with self._lock:
            self._database.execute("DELETE FROM keys WHERE key = ? AND answer IS NULL", [key])

    def close(self) -> None:
        with self._lock:
            self._database.close()
