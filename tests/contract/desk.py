"""A desk that answers as a scenario has it, in this process, and keeps what it heard.

What the script does not say is answered as a kind desk would: every event is accepted, every call
may be made. What the real one decides is tested against the real one.
"""

import json
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.ports import free_port

POLICY: dict[str, Any] = {
    "workspace": "northwind", "agent": "trip-desk", "digest": "sha256:0",
    "document": {"agentSafety": {"policies": {
        "charge_card": {"risk": "HIGH", "approval": "MANUAL"}, "*": {"approval": "AUTO"}}}},
    "masking": {"form": "v1", "key": bytes(range(32)).hex()},
}  # fmt: skip


LENT = "2126-11-29T12:00:00+00:00"
PAGE = b"<html><title>Log in to this network</title></html>"


class ScriptedDesk:
    """`script` has, for each of `policy`, `begin`, `events`, `approvals` and `directive`, the next
    answers, of a yes only what differs from the usual one; with `minds` an event whose text has
    these words is rejected. `wall` has the words that something on the way lets through in no
    request, and the status of its own page.
    """

    def __init__(self, certificate: Path | None = None) -> None:
        self.port = free_port()
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"
        self.script: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.minds = ""
        self.wall: dict[str, int] = {}
        self.heard: list[str] = []
        self.begun: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self._certificate = certificate
        self._server: ThreadingHTTPServer | None = None

    def up(self) -> None:
        self._server = _Server(("127.0.0.1", self.port), self._handler())
        if self._certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self._certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=[0.02], daemon=True).start()

    def down(self) -> None:
        """Nobody listens, and nobody who is connected is answered."""
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, method: str, path: str, body: Any) -> tuple[dict[str, Any], Any]:
        """What the script says of how to answer, and the answer."""
        kind, asks, query = path.removeprefix("/api/v1/").partition("?")
        if kind == "policy":
            return self._next("policy"), POLICY
        if kind == "actions/begin":
            self.heard.append(f"begin {body['data']['tool']}{asks}{query}")
            self.begun.append(body)
            said = self._next("begin")
            usual = {"answer": "proceed", "action": body["action"], "fence": 1, "lease_until": LENT}
            answer = said.get("answer") or usual
            return said, usual | answer if answer.get("answer") == "proceed" else answer
        if kind == "events":
            said = self._next("events") if body else {}
            return said, {} if "status" in said else {"results": [self._take(one) for one in body]}
        if kind.startswith("approvals/"):
            time.sleep(0.05)
            return {}, {"id": "ap_1", "state": "waiting"} | self._next("approvals")
        if kind.endswith("/directive"):
            return {}, {"directive": self._next("directive") or None}
        return {}, {}

    def _next(self, kind: str) -> dict[str, Any]:
        return self.script[kind].pop(0) if self.script[kind] else {}

    def _take(self, event: dict[str, Any]) -> dict[str, Any]:
        if self.minds and self.minds in json.dumps(event):
            problem = {"type": "/problems/poison", "title": "poison", "status": 422}
            return {"id": event["id"], "status": "rejected", "problem": problem}
        if any(event["id"] == one["id"] for one in self.events):
            return {"id": event["id"], "status": "duplicate"}
        self.heard.append(event["type"])
        self.events.append(event)
        return {"id": event["id"], "status": "accepted"}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        desk, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *said: object) -> None:
                pass

            def hear(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                for words, status in desk.wall.items():
                    if words.encode() in raw:
                        return self.give({"status": status, "kind": "text/html"}, PAGE)
                body = json.loads(raw) if raw and self.command == "POST" else None
                with lock:
                    how, answer = desk.answer(self.command, self.path, body)
                time.sleep(how.get("seconds", 0))
                return self.give(how, how.get("body", answer))

            def do_GET(self) -> None:
                self.hear()

            do_POST = do_PUT = do_GET  # noqa: N815 - as its base class wants them

            def give(self, how: Mapping[str, Any], answer: Any) -> None:
                text = answer if answer is PAGE else json.dumps(answer).encode()
                self.send_response(how.get("status", 200))
                self.send_header("Content-Type", how.get("kind", "application/json"))
                self.send_header("Content-Length", str(len(text)))
                if "retry_after" in how:
                    self.send_header("Retry-After", str(how["retry_after"]))
                self.end_headers()
                for letter in text if "drips" in how else b"":
                    self.wfile.write(bytes([letter]))
                    time.sleep(how["drips"])
                if "drips" not in how:
                    self.wfile.write(text[: len(text) // 2] if how.get("half") else text)
                self.close_connection = bool(how.get("half"))

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *given: Any) -> None:
        self.lines: list[Any] = []
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.lines.append(request)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A line that was cut is what the test wants."""

    def server_close(self) -> None:
        super().server_close()
        for line in self.lines:
            try:
                line.shutdown(2)
            except OSError:
                continue
