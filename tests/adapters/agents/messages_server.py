"""A scripted model behind the Messages API, on loopback: it asks for the calls that it is given,
one after the other.

A program that speaks with it (streaming) is at the call whose results it has told so far.
"""

import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Call = tuple[str, dict[str, Any], str]


def serve(calls: Sequence[Call]) -> str:
    """Start it in a thread; its address. Each call is a tool, its arguments, and an id."""

    class Messages(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *said: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._say(b"{}")

        def do_HEAD(self) -> None:
            self._say(b"")

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            if not self.path.startswith("/v1/messages?"):
                return self._say(b'{"input_tokens": 1}')
            return self._say(_stream(asked, calls), "text/event-stream")

        def _say(self, body: bytes, kind: str = "application/json") -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Messages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def _stream(asked: dict[str, Any], calls: Sequence[Call]) -> bytes:
    """One message as server-sent events: the next call, or the end."""
    contents = [one["content"] for one in asked["messages"] if isinstance(one["content"], list)]
    done = sum(part.get("type") == "tool_result" for parts in contents for part in parts)
    block, delta, stop = {"type": "text", "text": ""}, {}, "end_turn"
    if asked.get("tools") and done < len(calls):
        tool, args, call = calls[done]
        block = {"type": "tool_use", "id": call, "name": tool, "input": {}}
        delta, stop = {"type": "input_json_delta", "partial_json": json.dumps(args)}, "tool_use"
    message = {
        "id": f"msg_{done}", "type": "message", "role": "assistant", "model": asked["model"],
        "content": [], "stop_reason": None, "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip
    told = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0,
         "delta": delta or {"type": "text_delta", "text": "Done."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]  # fmt: skip
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in told).encode()
