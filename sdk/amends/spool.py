"""The spool: what happened is on disk before it is sent, and stays there until the desk has it.

One SQLite file per API key. Every write is durable when it returns. Beside the events it keeps what
this agent knows of its own keys, so that a call is not made twice while the desk is away.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from amends import forks, sqlite
from amends.errors import AmendsError, SpoolFull
from amends.protocol.vocabulary import KEYS_KEPT_DAYS

# Above this no new call is begun; outcomes of calls already made are always written.
BYTES_MAX = 512 * 1024 * 1024
# The limits of one POST /api/v1/events, with some room for the brackets.
BATCH_EVENTS_MAX = 1000
BATCH_BYTES_MAX = 8 * 1024 * 1024 - 64 * 1024
KEEP_SECONDS = KEYS_KEPT_DAYS * 24 * 3600

_TABLES = """
CREATE TABLE IF NOT EXISTS events (place INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL,
    id TEXT NOT NULL UNIQUE, body TEXT NOT NULL, blobs TEXT NOT NULL, problem TEXT);
CREATE INDEX IF NOT EXISTS waiting ON events (place) WHERE problem IS NULL;
CREATE INDEX IF NOT EXISTS waiting_of_run ON events (run, place) WHERE problem IS NULL;
CREATE TABLE IF NOT EXISTS blobs (sha256 TEXT PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS runs (run TEXT PRIMARY KEY, n INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS keys (key TEXT PRIMARY KEY, run TEXT NOT NULL, action TEXT NOT NULL,
    n INTEGER NOT NULL, asked TEXT NOT NULL, attempt TEXT NOT NULL, fence INTEGER,
    state TEXT NOT NULL, result TEXT, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS pivots (run TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (run, key));
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""

_KEY = """
SELECT key, run, action, n, asked, attempt, fence, state, result FROM keys WHERE key = ?"""

_ASIDE = """
SELECT 1 FROM events WHERE run = ? AND problem IS NOT NULL AND instr(body, ?) LIMIT 1"""
_PIVOT = """
SELECT 1 FROM pivots p JOIN keys k ON k.key = p.key
WHERE p.run = ? AND p.key <> ? AND k.state <> 'no_effect' LIMIT 1"""

KeyState = Literal["running", "unknown", "succeeded", "no_effect"]

# How one try has ended says little of another at the same key: only that the call was made, or, of
# one that is at it still, that nobody knows.
_END = """
INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET
    run = excluded.run, action = excluded.action, n = excluded.n, asked = excluded.asked,
    attempt = excluded.attempt, fence = excluded.fence, state = excluded.state,
    result = excluded.result, at = excluded.at
WHERE attempt = excluded.attempt OR state = 'no_effect' OR excluded.state = 'succeeded'
    OR (state = 'running' AND excluded.state = 'unknown')"""
_LEND = "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

# By the clock of a machine that may be years ahead, so never what only this file can tell: how a
# call stands of which the outcome, or anything of its run, was not heard yet. And "long ago" is
# long before the last call, too.
_FORGET = """
DELETE FROM keys WHERE at < (SELECT min(?, max(at)) FROM keys) - ?
    AND state NOT IN ('running', 'unknown') AND run NOT IN (SELECT run FROM events)"""


class CannotUse(AmendsError, sqlite3.OperationalError):
    """We stopped because the spool cannot be written or read: the disk is full, or fails. See why;
    what was to be kept is not, unless it says otherwise.
    """


class CannotOpen(CannotUse):
    """We stopped because the spool cannot be opened, at first or anew after a fork. See why."""


@dataclass(frozen=True)
class KeyRow:
    """What this agent knows of one of its keys. `asked` is the digest of tool, targets and args."""

    key: str
    run: str
    action: str
    n: int
    asked: str
    attempt: str
    fence: int | None
    state: KeyState
    result: Any = None

    @property
    def is_made_alone(self) -> bool:
        """Whether it may have been made, and not as one that the desk has lent."""
        return self.fence is None and self.state != "no_effect"


@dataclass(frozen=True)
class SpooledEvent:
    """An event that the desk does not have yet."""

    place: int
    body: str
    blobs: Sequence[str]


class Spool:
    """Safe to use from several threads, and from several processes that share the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes_max = BYTES_MAX
        self._lock = threading.RLock()
        self._process = -1
        self._closed = False
        self._database: sqlite3.Connection | None = self._open()
        forks.tell(self)

    def write(
        self,
        event: Mapping[str, Any],
        *,
        blobs: Mapping[str, bytes] | None = None,
        key: KeyRow | None = None,
    ) -> None:
        """Put an event in line, with its blobs and how it ended the try of `key`, in one
        transaction.
        """
        with self._writing() as database:
            self._put(database, event, blobs or {})
            if key:
                self._note(database, _END, key)

    def begin(
        self,
        planned: Mapping[str, Any],
        started: Mapping[str, Any],
        *,
        blobs: Mapping[str, bytes],
        key: KeyRow,
        was: KeyRow | None,
        is_pivot: bool,
    ) -> bool:
        """Put both statements in line and lend the key, in one transaction; False where the key no
        longer stands as it `was`: of all that share this file one may make the call.
        """
        with self._writing() as database:
            if self._found(database.execute(_KEY, [key.key]).fetchall()) != was:
                return False
            self._put(database, planned, blobs)
            self._put(database, started, {})
            self._lend(database, key, is_pivot=is_pivot)
        return True

    def keep(self, blobs: Mapping[str, bytes]) -> None:
        """Keep blobs that are to be sent with a question instead of an event."""
        with self._writing() as database:
            self._keep_blobs(database, blobs)

    def note(self, key: KeyRow, *, was: KeyRow | None, is_pivot: bool) -> KeyRow | None:
        """Remember what the desk says of a key. Gives, and leaves, a row of which the desk cannot
        have known: of a call that was made without it, since the key stood as it `was`, or of which
        something is set aside.
        """
        with self._writing() as database:
            found = self._found(database.execute(_KEY, [key.key]).fetchall())
            if found and found.attempt != key.attempt and found.is_made_alone:
                named = [found.run, f'"action":"{found.action}"']
                if found != was or database.execute(_ASIDE, named).fetchall():
                    return found
            self._lend(database, key, is_pivot=is_pivot)
        return None

    def has_pivot(self, run: str, *, but: str) -> bool:
        """Whether a call of a run after which there is no way back may have been made, by whoever
        shares this file; `but` the one of this key.
        """
        return bool(self._read(_PIVOT, [run, but]))

    def find(self, key: str) -> KeyRow | None:
        """What this agent knows of a key."""
        return self._found(self._read(_KEY, [key]))

    @staticmethod
    def _found(rows: list[Any]) -> KeyRow | None:
        if not rows:
            return None
        known: list[Any] = list(rows[0])
        known[-1] = json.loads(known[-1]) if known[-1] else None
        return KeyRow(*known)

    def next_n(self, run: str, *, above: int = 0) -> int:
        """The next number in a run: counted from 1, never given twice, also after a crash."""
        with self._writing() as database:
            row = database.execute(
                "INSERT INTO runs (run, n) VALUES (?, ?)"
                " ON CONFLICT (run) DO UPDATE SET n = max(n, ?) + 1 RETURNING n",
                [run, above + 1, above],
            ).fetchone()
        return int(row[0])

    def waiting(self, run: str | None = None) -> list[SpooledEvent]:
        """The oldest events that the desk does not have, as many as one request may carry."""
        where, values = ("AND run = ?", [run]) if run else ("", [])
        rows = self._read(
            f"SELECT place, body, blobs FROM events WHERE problem IS NULL {where}"  # noqa: S608
            f" ORDER BY place LIMIT {BATCH_EVENTS_MAX}",
            values,
        )
        batch: list[SpooledEvent] = []
        size = 0
        for place, body, blobs in rows:
            size += len(body.encode()) + 1
            if batch and size > BATCH_BYTES_MAX:
                break
            batch.append(SpooledEvent(place, body, json.loads(blobs)))
        return batch

    def sent(self, places: Iterable[int]) -> None:
        """Forget events that the desk has."""
        with self._writing() as database:
            database.executemany("DELETE FROM events WHERE place = ?", [[p] for p in places])

    def park(self, place: int, problem: Mapping[str, Any]) -> None:
        """Set an event aside that would hold up the others, with why; it stays on disk."""
        with self._writing() as database:
            database.execute(
                "UPDATE events SET problem = ? WHERE place = ?", [json.dumps(problem), place]
            )

    def count_parked(self) -> int:
        """How many events are set aside."""
        return int(self._read("SELECT count(*) FROM events WHERE problem IS NOT NULL")[0][0])

    def unpark(self, ids: Sequence[str] | None = None) -> int:
        """Put events that were set aside back in line, each in its old place; how many. All of
        them, or those of these ids.
        """
        with self._writing() as database:
            if ids is None:
                return database.execute(
                    "UPDATE events SET problem = NULL WHERE problem IS NOT NULL"
                ).rowcount
            rows = [[one] for one in ids]
            sql = "UPDATE events SET problem = NULL WHERE id = ? AND problem IS NOT NULL"
            return database.executemany(sql, rows).rowcount

    def parked(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Events set aside, each with the problem, oldest first, at most a thousand."""
        rows = self._read(
            "SELECT body, problem FROM events WHERE problem IS NOT NULL ORDER BY place LIMIT 1000"
        )
        return [(json.loads(body), json.loads(problem)) for body, problem in rows]

    def blob(self, sha256: str) -> bytes | None:
        """A blob that is still to be sent."""
        row = self._read("SELECT body FROM blobs WHERE sha256 = ?", [sha256])
        return bytes(row[0][0]) if row else None

    def blob_sent(self, sha256: str) -> None:
        with self._writing() as database:
            database.execute("DELETE FROM blobs WHERE sha256 = ?", [sha256])

    def remember(self, name: str, value: Any) -> None:
        """Keep a fact, such as the last policy fetched, over restarts."""
        with self._writing() as database:
            database.execute(
                "INSERT INTO facts (name, value) VALUES (?, ?)"
                " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                [name, json.dumps(value)],
            )

    def recall(self, name: str) -> Any:
        row = self._read("SELECT value FROM facts WHERE name = ?", [name])
        return json.loads(row[0][0]) if row else None

    def need_room(self) -> None:
        """Raise SpoolFull if so much waits that another call could not be recorded."""
        used = self._read(
            "SELECT (c.page_count - f.freelist_count) * s.page_size"
            " FROM pragma_page_count c, pragma_freelist_count f, pragma_page_size s"
        )[0][0]
        if used > self.bytes_max:
            raise SpoolFull(f"{used} bytes wait in {self.path}")

    @contextmanager
    def needed(self) -> Iterator[None]:
        """SpoolFull where the disk is to blame that a call cannot be asked for."""
        try:
            yield
        except sqlite3.DatabaseError as disk:
            if not sqlite.is_disk_trouble(disk):
                raise
            raise SpoolFull(f"{disk}, so the call was not made") from disk

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._let_go()

    def before_fork(self) -> None:
        """Close the file: SQLite's own book of locks would be copied, too, and be wrong there."""
        self._lock.acquire()
        self._let_go()

    def after_fork(self) -> None:
        self._lock.release()

    def born_of_fork(self) -> None:
        self._lock = threading.RLock()

    def _let_go(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600)
            os.close(descriptor)
            database = sqlite.connect(self.path, _TABLES)
            database.execute(_FORGET, [time.time(), KEEP_SECONDS])
            database.execute("DELETE FROM pivots WHERE key NOT IN (SELECT key FROM keys)")
        except (sqlite3.DatabaseError, OSError) as wrong:
            raise CannotOpen(f"the spool {self.path} cannot be opened: {wrong}") from wrong
        self._process = os.getpid()
        return database

    def _living(self) -> sqlite3.Connection:
        """A forked child may not use its parent's connection."""
        if self._closed:
            raise sqlite3.ProgrammingError("the spool is closed")
        if self._database is None or self._process != os.getpid():
            self._database = self._open()
        return self._database

    @contextmanager
    def _used(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            database = self._living()
            try:
                yield database
            except sqlite3.DatabaseError as wrong:
                if not sqlite.is_disk_trouble(wrong):
                    raise
                raise CannotUse(f"the spool {self.path} cannot be used ({wrong})") from wrong

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._used() as database:
            try:  # of all three, for the handler of a signal may raise as soon as one is done
                database.execute("BEGIN IMMEDIATE")
                yield database
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:  # on a full disk SQLite has taken it back itself
                    database.execute("ROLLBACK")
                raise

    def _read(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._used() as database:
            return database.execute(sql, values).fetchall()

    def _put(
        self,
        database: sqlite3.Connection,
        event: Mapping[str, Any],
        blobs: Mapping[str, bytes],
    ) -> None:
        self._keep_blobs(database, blobs)
        database.execute(
            "INSERT INTO events (run, id, body, blobs) VALUES (?, ?, ?, ?)",
            [event["run"], event["id"], compact(event), json.dumps(list(blobs))],
        )

    def _keep_blobs(self, database: sqlite3.Connection, blobs: Mapping[str, bytes]) -> None:
        database.executemany(
            "INSERT INTO blobs (sha256, body) VALUES (?, ?) ON CONFLICT DO NOTHING",
            list(blobs.items()),
        )

    def _lend(self, database: sqlite3.Connection, row: KeyRow, *, is_pivot: bool) -> None:
        self._note(database, _LEND, row)
        if is_pivot:
            database.execute("INSERT OR IGNORE INTO pivots VALUES (?, ?)", [row.run, row.key])

    def _note(self, database: sqlite3.Connection, sql: str, row: KeyRow) -> None:
        result = None if row.result is None else json.dumps(row.result)
        database.execute(
            sql,
            [row.key, row.run, row.action, row.n, row.asked, row.attempt, row.fence, row.state,
             result, time.time()],
        )  # fmt: skip


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
