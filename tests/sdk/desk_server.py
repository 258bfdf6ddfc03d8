"""A desk of a few lines in a process of its own, with a journal: what went over the wire, in order.

It stands in where a test needs a desk that loses answers, or a look at every request. What the real
one decides is tested against the real one.

    echo '{"port": 8001, "journal": "journal", "control": {}}' | python desk_server.py

Each line starts one and is answered with its process, forked from this one, for an interpreter and
its imports take longer than most stories; `{"end": PID}` kills one, and the end of all lines all.

`POST /control` merges into its settings: `modes` per tool (`proceed`, `wait`, `denied`, `maybe`,
`refused` and `garbled`), `changes`: what an approver has made of the arguments of a tool, `lease`
seconds, `lends`: for how many it says that a call is lent, `lose` (how many answers of `begin` to
lose after they took effect), `directive`,
`compensated` keys with their next ones, `decided` approvals, `elsewhere` (the status of another
server's page), `minds` (a text that a proxy does not let through; it says `says`) and
`minds_blobs`, `slow`: seconds that `begin` takes, `card`: the number of the approval that is waited
for (all others are withdrawn), `safety`: more of the policy, and `masking`: the workspace's key.
"""

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

POLICY = {"agentSafety": {
    "policies": {"charge_card": {"risk": "HIGH", "approval": "MANUAL"},
                 "note.*": {"risk": "LOW", "approval": "AUTO"}},
    "audit": {"mask": ["args.card.*"]}}}  # fmt: skip

# What a desk may answer that says neither yes nor no.
ODD: dict[str, Any] = {
    "refused": (422, {"type": "/problems/policy", "title": "no policy can be read", "status": 422}),
    "garbled": (200, {"items": []}),
    "maybe": (200, {"answer": "maybe"}),
}

lock = threading.RLock()
control: dict[str, Any] = {
    "modes": {},
    "changes": {},
    "lease": 60,
    "lose": 0,
    "directive": None,
    "compensated": {},
    "decided": [],
}
events: dict[str, Any] = {}
keys: dict[str, Any] = {}
journal: list[Path] = []


def write(kind, what):
    with lock, journal[0].open("a") as file:
        file.write(json.dumps([kind, what]) + "\n")


def take(event):
    if "poison" in event["data"]:
        problem = {"title": "poison", "status": 422}
        return {"id": event["id"], "status": "rejected", "problem": problem}
    if event["id"] in events:
        return {"id": event["id"], "status": "duplicate"}
    events[event["id"]] = event
    write("event", event)
    if event["type"] == "action.planned":
        args = json.dumps(event["data"]["args"], sort_keys=True)
        row = {"action": event["action"], "args": args, "state": "planned", "fence": 0}
        keys.setdefault(event["data"]["key"], row)
    for row in keys.values():
        if event.get("action") == row["action"] and event["type"] == "action.succeeded":
            row.update(state="succeeded", result=event["data"].get("result"))
        if event.get("action") == row["action"] and event["type"] == "action.failed":
            row["state"] = event["data"]["outcome"]
    return {"id": event["id"], "status": "accepted"}


def receive(body):
    if len(body) > 3 and any("whole" in event["data"] for event in body):
        return 413, {"title": "too large", "status": 413}
    return 200, {"results": [take(event) for event in body]}


def begin(body):  # noqa: PLR0911 - one row of the table each
    data, key = body["data"], body["data"]["key"]
    args = json.dumps(data["args"], sort_keys=True)
    row = keys.get(key)
    if key in control["compensated"]:
        return 200, {"answer": "compensated", "next_key": control["compensated"][key]}
    if row and row["args"] != args and row["state"] != "no_effect":
        return 422, {"type": "/problems/key-reused", "title": "other arguments", "status": 422}
    if not row:
        row = keys[key] = {"action": body["action"], "args": args, "state": "planned", "fence": 0}
    if row["state"] == "succeeded":
        return 200, {"answer": "replay", "action": row["action"], "result": row["result"]}
    if row["state"] == "unknown":
        return 200, {"answer": "in_doubt", "action": row["action"]}
    if row["state"] == "running" and row["attempt"] != body["attempt"]:
        if row["until"] > time.time():
            title, kind = "another attempt is under way", "/problems/in-progress"
            return 409, {"type": kind, "title": title, "status": 409}
        row["state"] = "unknown"
        return 200, {"answer": "in_doubt", "action": row["action"]}
    mode = control["modes"].get(data["tool"], "proceed")
    if mode == "denied":
        code = control.get("code", "rule")
        return 200, {"answer": "denied", "reason": "not on Fridays", "code": code}
    if mode in ODD:
        return ODD[mode]
    if mode == "wait" and key not in control["decided"]:
        card = control.get("card", 1)
        return 200, {"answer": "wait", "action": row["action"], "approval": f"ap_{card}",
                     "url": f"http://desk/approvals/{card}",
                     "expires_at": "2027-01-01"}  # fmt: skip
    row.update(state="running", attempt=body["attempt"], until=time.time() + control["lease"])
    row["fence"] += 1
    yes = {"answer": "proceed", "action": row["action"], "fence": row["fence"],
           "lease_until": "2126-11-29T12:00:00+00:00",
           "lease_seconds": control.get("lends")}  # fmt: skip
    changed = control["changes"].get(data["tool"])
    return 200, yes | ({"arguments": changed} if changed else {})


class Desk(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *said):
        pass

    def answer(self, status, body):
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def page(self, status):
        """What another server than the desk says."""
        self.send_response(status)
        if status == 301:
            self.send_header("Location", "https://elsewhere.example/")
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"<html>")

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_PUT(self):
        body = self.body()
        if control.get("minds_blobs"):
            return self.page(int(control["says"]))
        write("blob", [self.path.rsplit("/", 1)[1], len(body)])
        return self.answer(201, {})

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if control.get("elsewhere"):
            return self.page(int(control["elsewhere"]))
        if path.endswith("/policy"):
            safety = {**POLICY["agentSafety"], **control.get("safety", {})}
            return self.answer(200, {
                "workspace": "northwind", "agent": control.get("agent", "trip-desk"),
                "digest": "sha256:0", "document": {"agentSafety": safety},
                "masking": control.get("masking"),
            })  # fmt: skip
        if path.endswith("/directive"):
            return self.answer(200, {"directive": control["directive"]})
        end, asked = time.time() + min(2, int(query.partition("=")[2] or 0)), path.split("/")[-1]
        while (state := self.state_of(asked)) == "waiting" and time.time() < end:
            time.sleep(0.02)
        return self.answer(200, {"id": asked, "state": state})

    def state_of(self, approval):
        if approval != f"ap_{control.get('card', 1)}":
            return "withdrawn"
        return "granted" if control["decided"] else "waiting"

    def do_POST(self):
        body = json.loads(self.body() or b"null")
        with lock:
            answer = self.answered(body)
        if answer:
            self.answer(*answer)

    def answered(self, body):  # noqa: PLR0911 - one per kind of trouble
        if self.path == "/control":
            control.update(body)
            return 200, {"keys": keys}
        if self.headers["Authorization"] == "Bearer amends_revoked":
            return 401, {"title": "revoked"}
        if control.get("gone"):
            return int(control["gone"]), {"title": "a page of somebody else's"}
        if control.get("minds") and control["minds"] in json.dumps(body):
            return int(control["says"]), {"title": "a page of somebody else's"}
        if self.path.endswith("/events"):
            return receive(body)
        write("begin", body)
        time.sleep(control.get("slow", 0))
        answer = begin(body)
        if control["lose"] > 0:
            control["lose"] -= 1
            self.close_connection = True
            return None
        return answer


def start(asked):
    """It listens before anybody is told of it."""
    server = ThreadingHTTPServer(("127.0.0.1", asked["port"]), Desk)
    if pid := os.fork():
        server.server_close()
        return pid
    sys.stdin.close()
    control.update(asked["control"])
    journal.append(Path(asked["journal"]))
    server.serve_forever()
    raise AssertionError("it serves until it is killed")


def end(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


running = set[int]()
while line := sys.stdin.readline():
    said = json.loads(line)
    if "end" in said:
        end(said["end"])
        running.remove(said["end"])
    else:
        said["pid"] = start(said)
        running.add(said["pid"])
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
for one in running:
    end(one)
