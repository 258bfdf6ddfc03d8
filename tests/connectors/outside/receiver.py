"""A web server that writes down what it gets; `?status=503` in the address is what it answers."""

import sys
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.connectors.outside import Journal, certificate, serve, web

journal = Journal(sys.argv[1])


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        address = urlsplit(self.path)
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        journal.add(path=address.path, body=body, headers=dict(self.headers.items()))
        self.send_response(int(parse_qs(address.query).get("status", ["200"])[0]))
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


context, authority = certificate(journal.path.parent)
serve(
    url=f"http://127.0.0.1:{web(Receiver).server_port}",
    tls_port=web(Receiver, context).server_port,
    authority=authority,
)
