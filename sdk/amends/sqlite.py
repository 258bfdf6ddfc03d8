"""SQLite files that several processes of one machine share: the spool, and the keys of twins."""

import sqlite3
import time
from pathlib import Path

# Another process that shares the file has it for one commit.
LOCK_SECONDS_MAX = 30
_PAUSE_SECONDS = 0.01


def connect(path: Path | str, tables: str) -> sqlite3.Connection:
    """Open a file with these tables; every write is durable when it returns.

    Raises sqlite3.OperationalError where the file stays locked for LOCK_SECONDS_MAX.
    """
    database = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=LOCK_SECONDS_MAX
    )
    try:
        _write_ahead(database)
        database.executescript(f"PRAGMA synchronous = FULL;{tables}")
    except BaseException:
        database.close()
        raise
    return database


def is_disk_trouble(error: sqlite3.DatabaseError) -> bool:
    """Whether the disk or the file is to blame, which may be damaged, and not what was asked."""
    is_of_work = isinstance(error, sqlite3.OperationalError)
    return is_of_work or type(error) is sqlite3.DatabaseError


def _write_ahead(database: sqlite3.Connection) -> None:
    """SQLite's own wait for a lock does not cover this change, which the first of all makes."""
    until = time.monotonic() + LOCK_SECONDS_MAX
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL").close()
        except sqlite3.OperationalError as busy:
            locked = busy.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not locked or time.monotonic() > until:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return
