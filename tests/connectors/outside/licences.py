"""A licence service with a journal. It mounts the SDK's twins, as a customer's service would.

`POST /mood` with a word changes how it behaves from then on: "well", "locked", "dies-after" (does
it, then answers 500), "lies" (does it, then says 500 and that nothing happened), "at-a-loss",
"garbled", "slow" (does it, then answers a byte at a time), "huge".
`POST /hold` gives a licence to somebody.
"""

import json
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

from amends import NoEffect, twins
from tests.connectors.outside import Journal, serve, web

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
journal = Journal(sys.argv[1])
held: dict[str, dict[str, Any]] = {
    "L-7": {"holder": "mia", "seat": 7},
    "L-8": {"holder": "tom", "seat": 8},
}
moods = ["well"]
undo = twins.Twins(SECRET, store=f"{tempfile.mkdtemp()}/twins.sqlite")


@undo.undo("release_licence")
def release(args: dict[str, Any], target: dict[str, Any], key: str) -> None:
    if moods[-1] == "locked":
        raise NoEffect("the licence is locked by billing")
    if held.pop(target["id"], None) is not None:
        journal.add(released=target["id"], key=key)


@release.observe
def licence(args: dict[str, Any], target: dict[str, Any]) -> dict[str, Any] | None:
    return held.get(target["id"])


@undo.undo("restore_licence")
def restore(args: dict[str, Any], target: dict[str, Any], key: str, *, before: Any) -> None:
    held[target["id"]] = before
    journal.add(restored=target["id"], key=key)


restore.observe(licence)


class Service(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/mood":
            moods.append(body.decode())
            self.answer(200, b"{}")
            return
        if self.path == "/hold":
            said = json.loads(body)
            held[said.pop("id")] = said
            self.answer(200, b"{}")
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, said = undo.answer(headers, body)
        if status == 200 and moods[-1] == "dies-after":
            status, said = 500, {"detail": "something broke"}
        if moods[-1] == "lies":
            status, said = 500, {"outcome": "no_effect", "detail": "nothing happened"}
        if moods[-1] == "at-a-loss":
            said = {"outcome": "unknown", "detail": "it may be on its way"}
        self.answer(status, b"<html>" if moods[-1] == "garbled" else json.dumps(said).encode())

    def answer(self, status: int, body: bytes) -> None:
        if moods[-1] == "huge":
            body = b" " * 2_000_000 + body
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if moods[-1] != "slow":
            self.wfile.write(body)
            return
        for byte in body:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            time.sleep(0.8)

    def log_message(self, *args: Any) -> None:
        pass


serve(url=f"http://127.0.0.1:{web(Service).server_port}/amends", secret=SECRET)
