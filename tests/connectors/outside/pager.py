"""A pager: `POST` sets an alarm as an agent would, `PUT` silences it, `GET` looks."""

import json
import sys
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.connectors.outside import Journal, serve, web

journal = Journal(sys.argv[1])
alarms: dict[str, dict[str, Any]] = {}
TOKENS = {"Bearer canary-pager", "Bearer secret-token"}  # ours, and the guide's


class Pager(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer(200 if self.path in alarms else 404, alarms.get(self.path, {}))

    def do_POST(self) -> None:
        alarms[self.path] = self.said()
        self.answer(200, {})

    def do_PUT(self) -> None:
        if self.headers["authorization"] not in TOKENS:
            self.answer(401, {})
            return
        alarms[self.path] = self.said()
        journal.add(silenced=self.path, key=self.headers["idempotency-key"])
        self.answer(200, {})

    def said(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        return read

    def answer(self, status: int, said: dict[str, Any]) -> None:
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


serve(url=f"http://127.0.0.1:{web(Pager).server_port}")
