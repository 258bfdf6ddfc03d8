"""Twins: the undo of a tool, living in the engineer's own service and called by the desk.

Mount `Twins.wsgi` or `Twins.asgi` under one address and give that address and the signing secret to
a `webhook` connection. Each key is done once, whatever the desk repeats. docs/twins.md has the
protocol.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from amends import forks, sqlite, webhooks
from amends.errors import NoEffect
from amends.protocol.canonical import digest
from amends.protocol.vocabulary import KEYS_KEPT_DAYS

# Where a service remembers which keys it has begun and how they ended.

# As long as the ledger keeps keys, so that no undo is repeated because it was forgotten.
KEEP_SECONDS = KEYS_KEPT_DAYS * 24 * 3600
# By the clock of a machine that may be years ahead: "long ago" is long before the last key, too.
_FORGET = """
DELETE FROM keys WHERE began < (SELECT min(?, max(began)) FROM keys) - ? AND answer IS NOT NULL"""
# After so long a process that is there counts as another one, which has the number of one that was
# killed; unless the kernel says that it is the same, which may have been stopped for long.
RUNNING_SECONDS_MAX = 15 * 60


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
        database = sqlite.connect(
            self._path,
            "CREATE TABLE IF NOT EXISTS keys (key TEXT PRIMARY KEY, asked TEXT NOT NULL,"
            " answer TEXT, began REAL NOT NULL);"
            "CREATE TABLE IF NOT EXISTS running (key TEXT PRIMARY KEY, process INTEGER NOT NULL);"
            "CREATE TABLE IF NOT EXISTS since (key TEXT PRIMARY KEY, started TEXT);",
        )
        database.execute(_FORGET, [time.time(), KEEP_SECONDS])
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
        with self._lock, self._database:
            self._database.execute("BEGIN IMMEDIATE")
            added = self._database.execute(
                "INSERT INTO keys (key, asked, began) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                [key, asked, time.time()],
            )
            if added.rowcount:
                row = [key, os.getpid()]
                self._database.execute("INSERT OR REPLACE INTO running VALUES (?, ?)", row)
                row = [key, _started(os.getpid())]
                self._database.execute("INSERT OR REPLACE INTO since VALUES (?, ?)", row)
        return None if added.rowcount else self.find(key)

    def ended(self, key: str) -> None:
        """This process is no longer at it, however that went."""
        with self._lock:
            self._database.execute("DELETE FROM running WHERE key = ?", [key])
            self._database.execute("DELETE FROM since WHERE key = ?", [key])

    def is_elsewhere(self, key: str) -> bool:
        """Whether another process of this machine may still be at it."""
        with self._lock:
            row = self._database.execute(
                "SELECT process, began > ?, started FROM running JOIN keys USING (key)"
                " LEFT JOIN since USING (key) WHERE key = ?",
                [time.time() - RUNNING_SECONDS_MAX, key],
            ).fetchone()
        if row is None or row[0] == os.getpid() or not _is_alive(row[0]):
            return False
        process, is_recent, started = row
        return bool(is_recent) or (started is not None and started == _started(process))

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


def _is_alive(process: int) -> bool:
    """Whether there is such a process; where that cannot be asked, there may be."""
    if sys.platform == "win32":  # there the signal would end it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _started(process: int) -> str | None:
    """Since when the kernel has it, in ticks since its own start; None where it does not say
    (proc(5): field 22, and the name before it may hold anything).
    """
    try:
        return (
            Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
        )
    except (OSError, IndexError):
        return None


log = logging.getLogger("amends.twins")

# The largest request that is read; snapshots above 64 KiB travel by reference.
BODY_BYTES_MAX = 1024 * 1024
# An operation, a key, the type or id of a target.
TEXT_MAX = 400

Outcome = Literal["applied", "no_effect", "unknown"]
State: TypeAlias = dict[str, Any]
Observe = Callable[[State, State], State | None]
Probe = Callable[[State, State, str], bool | None]
Apply = Callable[..., State | None]
# What the request may hold beside arguments, target and key, for functions that name it.
RECORDED = ("before", "expected")


@dataclass
class Undo:
    """One twin: what undoes, what looks, and what finds out whether a lost call took effect."""

    name: str
    apply: Apply
    look: Observe | None = None
    find: Probe | None = None

    def observe(self, function: Observe) -> Observe:
        """Register how to read the target: its fields, or None where it is not there."""
        self.look = function
        return function

    def probe(self, function: Probe) -> Probe:
        """Register how to find out whether a key took effect: True, False, or None for unknown."""
        self.find = function
        return function

    def applied(self, request: State) -> State | None:
        """NoEffect where it cannot do without what the desk has no record of."""
        given = (request["args"], request["target"], request["key"])
        more, lacks = _recorded(self.apply, request)
        if lacks:
            raise NoEffect(f"the desk has no record of “{lacks}”, which {self.name} needs")
        return self.apply(*given, **more)

    def observed(self, args: State, target: State) -> State | None:
        if self.look is None:
            return None
        state = self.look(args, target)
        return {"found": state is not None, "state": state}


class Twins:
    """The twins of one service behind one address."""

    def __init__(
        self, secrets: str | Iterable[str], *, store: KeyStore | str = "twins.sqlite"
    ) -> None:
        """`secrets` are `whsec_…`, several while they are changed.

        `store` remembers keys: the path of a SQLite file, or an object with the methods of
        `KeyStore` for a service on several machines.
        """
        self.secrets = [secrets] if isinstance(secrets, str) else list(secrets)
        for secret in self.secrets:
            webhooks.secret_bytes(secret)
        self.store = SqliteKeys(store) if isinstance(store, str) else store
        self.undos: dict[str, Undo] = {}
        self._running: set[str] = set()

    def undo(self, name: str) -> Callable[[Apply], Undo]:
        """Register a function `(args, target, key)` as the undo of this name. If it also names
        `before` (what is to be restored) or `expected` (as the agent left it), it gets them, None
        for: not there. Where nothing was recorded its default counts, and without one it is not
        called: nothing happened.

        It may return the fields of the target as it left them. Where it knows that nothing happened
        it raises `amends.NoEffect`; any other exception is an unknown outcome.
        """

        def register(function: Apply) -> Undo:
            if name in self.undos:
                raise ValueError(f"there is an undo {name} already")
            self.undos[name] = Undo(name, function)
            return self.undos[name]

        return register

    def answer(self, headers: dict[str, str], body: bytes) -> tuple[int, State]:
        """The whole protocol: HTTP status and JSON answer for one signed request."""
        try:
            webhooks.check(self.secrets, headers=headers, body=body)
        except webhooks.BadSignature as reason:
            return 401, {"detail": str(reason)}
        try:
            request = _request(body)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            return 400, {"outcome": "no_effect", "detail": f"the request is malformed: {error}"}
        undo = self.undos.get(request["operation"])
        if undo is None:
            return 404, {"outcome": "no_effect", "detail": f"no undo {request['operation']}"}
        try:
            return 200, self._do(undo, request)
        except Exception as error:  # The edge of the service: whatever it was, we do not know.
            log.exception("the twin %s failed", undo.name)
            return 200, _said("unknown", detail=type(error).__name__)

    def _do(self, undo: Undo, request: State) -> State:
        args, target = request["args"], request["target"]
        if request["do"] == "observe":
            return _said("no_effect", undo.observed(args, target))
        if request["do"] == "probe":
            return self._probe(undo, args, target, request["key"])
        return self._apply(undo, request)

    def _apply(self, undo: Undo, request: State) -> State:
        args, target, key = request["args"], request["target"], request["key"]
        asked = digest({"operation": undo.name, "args": args, "target": target})
        row = self.store.start(key, asked)
        if row is not None and row.asked != asked:
            return _said("unknown", detail="this key was used for another request")
        if row is not None:
            return row.answer or self._probe(undo, args, target, key)
        self._running.add(key)
        try:
            return self._applied(undo, request)
        finally:
            self._running.discard(key)
            if isinstance(self.store, SqliteKeys):
                self.store.ended(key)

    def _applied(self, undo: Undo, request: State) -> State:
        args, target, key = request["args"], request["target"], request["key"]
        try:
            state = undo.applied(request)
        except NoEffect as reason:
            self.store.forget(key)
            return _said("no_effect", detail=str(reason))
        observed = undo.observed(args, target)
        if observed is None and state is not None:
            observed = {"found": True, "state": state}
        answer = _said("applied", observed)
        self.store.finish(key, answer)
        return answer

    def _is_running(self, key: str) -> bool:
        store = self.store
        return key in self._running or (isinstance(store, SqliteKeys) and store.is_elsewhere(key))

    def _probe(self, undo: Undo, args: State, target: State, key: str) -> State:
        """A key never seen is absent; one that began and did not end is for `probe` to find out."""
        row = self.store.find(key)
        if row is None:
            return _said("no_effect", undo.observed(args, target))
        if row.answer is not None:
            return row.answer
        may_ask = undo.find is not None and not self._is_running(key)
        took_effect = undo.find(args, target, key) if undo.find and may_ask else None
        if took_effect is None:
            return _said("unknown", undo.observed(args, target), "begun, its end is not known")
        if not took_effect:
            self.store.forget(key)
            return _said("no_effect", undo.observed(args, target))
        answer = _said("applied", undo.observed(args, target))
        self.store.finish(key, answer)
        return answer

    def wsgi(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Mount this in Flask, Django, Bottle or any other WSGI server."""
        length = environ.get("CONTENT_LENGTH") or "0"
        size = int(length) if length.isdigit() else 0
        if environ["REQUEST_METHOD"] != "POST" or size > BODY_BYTES_MAX:
            status, answer = 405 if size <= BODY_BYTES_MAX else 413, {"detail": "POST, up to 1 MiB"}
        else:
            headers = {
                name[5:].replace("_", "-").lower(): value
                for name, value in environ.items()
                if name.startswith("HTTP_")
            }
            status, answer = self.answer(headers, environ["wsgi.input"].read(size))
        body = json.dumps(answer).encode()
        start_response(
            f"{status} {_REASONS[status]}",
            [("Content-Type", "application/json"), ("Content-Length", str(len(body)))],
        )
        return [body]

    async def asgi(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """Mount this in FastAPI, Starlette or any other ASGI server. Twins run in a thread."""
        if scope["type"] != "http":
            return
        body, more = b"", scope["method"] == "POST"
        while more and len(body) <= BODY_BYTES_MAX:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if scope["method"] != "POST" or len(body) > BODY_BYTES_MAX:
            status, answer = 413 if body else 405, {"detail": "POST, up to 1 MiB"}
        else:
            headers = {name.decode("latin-1"): v.decode("latin-1") for name, v in scope["headers"]}
            status, answer = await asyncio.to_thread(self.answer, headers, body)
        kind = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": kind})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found",
            405: "Method Not Allowed", 413: "Content Too Large"}  # fmt: skip


def _said(outcome: Outcome, observed: State | None = None, detail: str = "") -> State:
    return {"outcome": outcome, "observed": observed, "detail": detail}


def _recorded(function: Apply, request: State) -> tuple[State, str]:
    """What it takes by name of what the desk has recorded, and the first that it lacks, if any."""
    try:
        named = list(inspect.signature(function).parameters.values())[3:]
    except ValueError:  # a function that Python knows nothing of
        return {}, ""
    takes = {one.name: one.default for one in named if one.name in RECORDED}
    lacks = [name for name, usual in takes.items()
             if name not in request and usual is inspect.Parameter.empty]  # fmt: skip
    return {name: request[name] for name in takes if name in request}, next(iter(lacks), "")


def _request(body: bytes) -> State:
    """The request, checked; ValueError, KeyError or TypeError where it is not as it must be."""
    request = json.loads(body)
    if request["v"] != 1 or request["do"] not in ("observe", "apply", "probe"):
        raise ValueError("v must be 1 and do one of observe, apply, probe")
    target = request["target"]
    # Looking is done under no key: whoever tries a connection has none yet.
    key = request["key"] if request["do"] != "observe" else request["key"] or "none"
    texts = (request["operation"], key, target["type"], target["id"])
    if not all(isinstance(text, str) and 0 < len(text) <= TEXT_MAX for text in texts):
        raise ValueError("operation, key and target must be texts")
    if not isinstance(request["args"], dict):
        raise TypeError("args must be an object")
    return {**request, "target": {"type": target["type"], "id": target["id"]}}
