"""A server reached over HTTP, which answers a call that it has made in some way of its own."""

import json
from http.server import BaseHTTPRequestHandler

import pytest

from tests.mcp.conftest import Gateway, RawClient, words
from tests.mcp.test_traps import outcomes
from tests.ports import answering
from tests.sdk.conftest import KEY

pytestmark = pytest.mark.adapters


class Remote(BaseHTTPRequestHandler):
    """`made` are the calls that it carried out; it answers each as its argument `how` says."""

    made: list[str]
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.close_connection = True  # so that each request needs one of its own
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in asked:
            return self.tell(202)
        answers = {
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                           "serverInfo": {"name": "remote", "version": "1"}},
            "tools/list": {"tools": [{"name": "pay", "inputSchema": {"type": "object"}}]},
        }  # fmt: skip
        if asked["method"] in answers:
            result = {"jsonrpc": "2.0", "id": asked["id"], "result": answers[asked["method"]]}
            return self.tell(200, json.dumps(result).encode(), "application/json")
        how = asked["params"]["arguments"]["how"]
        self.made.append(how)
        return getattr(self, how)()

    def do_GET(self):
        self.tell(405)

    do_DELETE = do_GET  # noqa: N815 - as its base class wants them

    def tell(self, status, body=b"", kind="text/html", length=None, **headers):
        self.send_response(status)
        for name, value in {"Content-Type": kind, **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def taken_for_later(self):
        self.tell(202)

    def page(self):
        self.tell(200, b"<html>")

    def seen_elsewhere(self):
        self.tell(303, Location="https://elsewhere.example/")

    def error(self):
        self.tell(502, b"<html>")

    def cut(self):
        self.tell(200, b'{"jsonrpc": "2.0", "id"', "application/json", length=500)

    def cut_stream(self):
        self.tell(200, b"event: message\r\ndata: {", "text/event-stream", length=500)

    def hung_up(self):
        pass


@pytest.mark.parametrize(
    "how",
    ["taken_for_later", "page", "seen_elsewhere", "error", "cut", "cut_stream", "hung_up"],
)
def test_of_a_call_whose_answer_is_lost_nobody_says_that_it_had_no_effect(
    desk_that_allows, tmp_path, how
):
    """The protocol's package said so of three, which were then made again, and the gateway ended
    with two. What is not sent, since nobody is there, has none.
    """

    class Here(Remote):
        made: list[str] = []

    spool = tmp_path / "agent.sqlite"
    gateway = Gateway(desk_that_allows.url, KEY, spool, [], "--run", "run_7", "--url")
    with answering(Here) as url:
        gateway.command.append(f"{url}/mcp")
        client = RawClient(gateway)

        said = client.call("pay", how=how)["code"]
        again = words(client.call("pay", how=how))

    assert said in (-32603, -32000), "not what says that it was not carried out"
    assert "may have happened, so it was not made again" in again
    assert "cannot be reached" in client.call("pay", how="nobody is there")["message"]
    client.leave()
    assert (Here.made, outcomes(desk_that_allows)) == ([how], ["unknown", "no_effect"])
