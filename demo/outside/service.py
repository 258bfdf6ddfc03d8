"""What the two small services share: a WSGI application of a few JSON calls, served in threads."""

import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

# A journal that only grows: one JSON line for every effect, written through to the disk.

Entry = dict[str, Any]


class Journal:
    """What happened in one outside system, in order; its state is what the entries add up to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.RLock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")

    def write(self, what: str, **facts: Any) -> Entry:
        entry = {"at": datetime.now(UTC).isoformat(), "what": what, **facts}
        with self.lock:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        return entry

    def entries(self) -> Iterator[Entry]:
        with self.path.open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)


BODY_BYTES_MAX = 64 * 1024

Json = dict[str, Any]
Answer = tuple[int, Json]
Route = Callable[..., Answer]
Application = Callable[..., Iterable[bytes]]


class Service:
    """Calls by method and path; what they answer is JSON. `mounts` are whole applications."""

    def __init__(self) -> None:
        self.routes: list[tuple[str, re.Pattern[str], Route]] = []
        self.mounts: dict[str, Application] = {}

    def route(self, method: str, path: str) -> Callable[[Route], Route]:
        def register(function: Route) -> Route:
            self.routes.append((method, re.compile(f"^{path}$"), function))
            return function

        return register

    def __call__(self, environ: Json, start_response: Callable[..., Any]) -> Iterable[bytes]:
        for prefix, application in self.mounts.items():
            if environ["PATH_INFO"].startswith(prefix):
                return application(environ, start_response)
        status, answer = self._answer(environ)
        body = json.dumps(answer).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        start_response(f"{status} {HTTPStatus(status).phrase}", headers)
        return [body]

    def _answer(self, environ: Json) -> Answer:
        for method, path, function in self.routes:
            found = path.match(environ["PATH_INFO"])
            if found and method == environ["REQUEST_METHOD"]:
                length = int(environ.get("CONTENT_LENGTH") or 0)
                if length > BODY_BYTES_MAX:
                    return 413, {"error": "too long"}
                body = environ["wsgi.input"].read(length)
                try:
                    said = json.loads(body) if body else {}
                except ValueError:
                    return 400, {"error": "not JSON"}
                return function(said, environ, *found.groups())
        return 404, {"error": "no such call"}


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing: the journal tells what happened."""


class Threaded(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 64


def serve(application: Application, port: int) -> Threaded:
    """A server on loopback that answers in threads; call `serve_forever` on it."""
    server = make_server("127.0.0.1", port, application, Threaded, Quiet)
    assert isinstance(server, Threaded)  # noqa: S101  # make_server is typed as its base
    return server
