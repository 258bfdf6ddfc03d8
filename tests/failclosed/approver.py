"""Whoever a framework's own gate asks: a service that passes a person's answer on, in a process of
its own.

    python approver.py PORT JOURNAL MODE

A person's yes counts for one run, tool and arguments, and is kept: whoever asks for them again gets
the same answer, as a gate that polls, or that was started anew, needs it. Each yes that was given
is a line of the journal. MODE is what goes wrong with it: `yes` or `no` (nothing), `killed` (it
dies while it is asked), `slow` (it answers, no, after the limit of whoever asks) or `half` (its yes
breaks off).
"""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SLOW_SECONDS = 8.0
JOURNAL, MODE = Path(sys.argv[2]), sys.argv[3]


class Approver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *said):
        pass

    def do_GET(self):
        self._say(b"{}")

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if MODE == "killed":
            os._exit(1)
        if MODE == "slow":
            time.sleep(SLOW_SECONDS)
        if MODE == "yes":
            with JOURNAL.open("a") as journal:
                journal.write(json.dumps([asked["tool"], asked["args"]]) + "\n")
        self._say(json.dumps({"approved": MODE in ("yes", "half")}).encode())

    def _say(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if MODE == "half" and len(body) > 2 else body)
        self.wfile.flush()
        self.close_connection = True


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Approver).serve_forever()
