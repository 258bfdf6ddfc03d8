"""An outside system in its own process, with its own memory: things that can be set and removed.

Its journal is a file that only grows, one line per effect, flushed to the disk before the answer
goes out. The journal is the oracle of every crash test: nobody of ours writes it.

    python -m tests.outside.service PORT JOURNAL

`PUT /things/ID` sets fields, `DELETE` removes, `GET` reads. With `?honours=key` the service
remembers idempotency keys like a payments provider. `POST /mischief` makes the next calls on a
thing go wrong.
"""

import json
import os
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class World:
    """All that the service remembers; a lock around each effect, as a database would have."""

    def __init__(self, journal: Path) -> None:
        self.lock = threading.Lock()
        self.things: dict[str, dict[str, Any]] = {}
        self.versions: dict[str, int] = {}
        self.keys: dict[str, str] = {}
        self.mischief: dict[str, list[dict[str, Any]]] = {}
        self.under_way: dict[str, int] = {}
        self.most_under_way: dict[str, int] = {}
        self.journal = journal.open("ab", buffering=0)

    def forget(self) -> None:
        with self.lock:
            for memory in (self.things, self.versions, self.keys, self.mischief):
                memory.clear()
            self.most_under_way.clear()

    def write(self, thing: str, key: str, verb: str, fields: Any) -> None:
        line = {"thing": thing, "key": key, "verb": verb, "fields": fields, "at": time.time()}
        self.journal.write(json.dumps(line).encode() + b"\n")
        os.fsync(self.journal.fileno())

    def enter(self, kind: str, by: int) -> None:
        """Count the calls on things of a kind (their first letter) that are here at once."""
        with self.lock:
            self.under_way[kind] = self.under_way.get(kind, 0) + by
            most = self.most_under_way.get(kind, 0)
            self.most_under_way[kind] = max(most, self.under_way[kind])

    def trouble(self, thing: str) -> dict[str, Any]:
        with self.lock:
            waiting = self.mischief.get(thing) or self.mischief.get("*") or []
            return waiting.pop(0) if waiting else {}

    def change(self, thing: str, key: str, verb: str, fields: Any, *, honours: bool) -> str:
        with self.lock:
            if honours and key in self.keys:
                return "replayed"
            self.write(thing, key, verb, fields)
            self.keys[key] = thing
            self.versions[thing] = self.versions.get(thing, 0) + 1
            if verb == "remove":
                self.things.pop(thing, None)
            else:
                self.things[thing] = self.things.get(thing, {}) | fields
            return "done"


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    world: World

    def do_GET(self) -> None:
        kind, name, _ = self._asked()
        world = self.world
        if kind == "keys":
            return self._answer(200, {"found": name in world.keys})
        if kind == "healthz":
            return self._answer(200, {})
        if kind == "most":
            return self._answer(200, {"most": world.most_under_way.get(name, 0)})
        trouble = world.trouble(f"read {name}")
        time.sleep(trouble.pop("sleep_before", 0))
        if trouble:
            return self._answer(trouble.get("status", 503), {})
        if name not in world.things:
            return self._answer(404, {})
        return self._answer(200, world.things[name], version=world.versions.get(name, 0))

    def do_PUT(self) -> None:
        self._change("set")

    def do_DELETE(self) -> None:
        self._change("remove")

    def do_POST(self) -> None:
        kind, _, _ = self._asked()
        body = self._body()
        if kind == "mischief":
            with self.world.lock:
                self.world.mischief.setdefault(body.pop("thing"), []).append(body)
        if kind == "seed":  # what is there already, and nobody's effect
            with self.world.lock:
                self.world.things.update(body)
                for name in body:
                    self.world.versions[name] = self.world.versions.get(name, 0) + 1
        if kind == "forget":
            self.world.forget()
        self._answer(200, {})

    def _change(self, verb: str) -> None:
        _, name, query = self._asked()
        body = self._body()
        self.world.enter(name[0], 1)
        try:
            self._do(verb, name, query, body)
        finally:
            self.world.enter(name[0], -1)

    def _do(self, verb: str, name: str, query: dict[str, list[str]], body: Any) -> None:
        trouble = self.world.trouble(name)
        time.sleep(trouble.get("sleep_before", 0))
        status = self._refusal(name, trouble)
        if status:
            self._answer(status, {})
            return
        key = self.headers.get("Idempotency-Key", "")
        honours = query.get("honours") == ["key"]
        done = self.world.change(name, key, verb, body, honours=honours)
        time.sleep(trouble.get("sleep_after", 0))
        if "leaves" in trouble:  # somebody else is at it in the same moment
            self.world.things[name] = trouble["leaves"]
        if "says" in trouble:
            self._answer(200, {"outcome": done, "said": trouble["says"]})
        elif trouble:
            self._lose(trouble)
        else:
            self._answer(200, {"outcome": done})

    def _refusal(self, name: str, trouble: dict[str, Any]) -> int:
        wanted = self.headers.get("If-Match")
        if wanted is not None and wanted != str(self.world.versions.get(name, 0)):
            return 412
        return 422 if "refuse" in trouble else 500 if "fail" in trouble else 0

    def _lose(self, trouble: dict[str, Any]) -> None:
        """The effect is there, and the answer goes wrong."""
        if "fail_after" in trouble:
            self._answer(500, {})
        elif "reset_after" in trouble:
            self._reset()
        elif "truncate" in trouble:
            self._truncated()
        elif "drip" in trouble:
            self._drip(trouble["drip"])
        else:
            self._answer(200, {"outcome": "done"})

    def _asked(self) -> tuple[str, str, dict[str, list[str]]]:
        parts = urlsplit(self.path)
        kind, _, name = parts.path.lstrip("/").partition("/")
        return kind, unquote(name), parse_qs(parts.query)

    def _body(self) -> Any:
        """Raises ConnectionError where its sender was killed in the middle: that is no request."""
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionError("the sender has ended before its request")
        return json.loads(body or b"{}")

    def _answer(self, status: int, body: Any, *, version: int | None = None) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        if version is not None:
            self.send_header("ETag", str(version))
        self.end_headers()
        self.wfile.write(content)

    def _reset(self) -> None:
        """Headers, and then the connection is gone without a word."""
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, (1).to_bytes(4, "little") + bytes(4)
        )
        self.close_connection = True

    def _truncated(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b'{"outcome": "do')
        self.close_connection = True

    def _drip(self, seconds: float) -> None:
        """An answer that comes byte by byte and would take for ever."""
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.end_headers()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.wfile.write(b" ")
            time.sleep(0.1)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's
        """The journal is log enough."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that hangs up is part of the tests."""


def main(port: str, journal: str) -> None:
    Service.world = World(Path(journal))
    Server(("127.0.0.1", int(port)), Service).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
