"""An MCP server of a few lines, over stdio, that does what a test wants, and keeps a journal.

    python odd.py JOURNAL '{"twice": true}'

What it was asked to do stands in the journal, one line each, before it answers: what is not there
never reached it. `lists` are the annotations that it tells of its tools, per listing; with
`announces` its start stands there, too.
"""

import json
import os
import sys
import time
from pathlib import Path

journal, wants = Path(sys.argv[1]), json.loads(sys.argv[2] if len(sys.argv) > 2 else "{}")
SCHEMA = {"type": "object"}
NAMES = (
    "note",
    "look",
    "slow",
    "die",
    "big",
    "fail",
    "wrong",
    "ask",
    "steps",
    "back",
    "inverse",
    "secrets",
)
listings: list[object] = []
looks: list[object] = []


def note(*words):
    with journal.open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")
        file.flush()
        os.fsync(file.fileno())


def say(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def tools():
    lists = wants.get("lists") or [{}]
    hints = lists[min(len(listings), len(lists) - 1)]
    listings.append(hints)
    found = [
        {"name": name, "inputSchema": SCHEMA, "annotations": hints.get(name, {})}
        for name in [*NAMES, *wants.get("also", [])]
    ]
    if wants.get("twice"):
        found.append(
            {"name": "note", "inputSchema": SCHEMA, "annotations": {"destructiveHint": True}}
        )
    return found


def ask_client(method, params):
    """Ask the client something while a call is open; what it answers."""
    say(id=f"of server {method}", method=method, params=params)
    while True:
        message = json.loads(sys.stdin.readline())
        if message.get("id") == f"of server {method}" and "method" not in message:
            return message.get("result", message.get("error"))


def look():
    looks.append(len(looks) + 1)
    if looks[-1] == wants.get("stalls_at"):
        journal.with_suffix(".stalls").touch()
        time.sleep(wants.get("stalls_seconds", 1))
    return text(journal.read_text() if journal.exists() else "")


def call(request, name, args, meta):  # noqa: PLR0911 - one for each tool
    if name == "back" and "inputResponses" not in request["params"]:
        asks = {"seat": {"method": "elicitation/create", "params": {"message": "Which seat?"}}}
        return {"resultType": "input_required", "requestState": "half", "inputRequests": asks}
    if name == "look":
        return look()
    if name == "secrets":
        return text(" ".join(one for one in os.environ if one.startswith("AMENDS")))
    note(name, json.dumps(args, sort_keys=True))
    if name == "slow":
        time.sleep(args["seconds"])
        note("slow has ended")
    if name == "die":
        os._exit(3)
    if name == "fail":
        return text("there is no such thing", isError=True)
    if name == "big":
        return text("x" * args["bytes"])
    if name == "ask":
        roots = ask_client("roots/list", {})
        sampled = ask_client("sampling/createMessage", {"messages": [], "maxTokens": 9})
        return text(json.dumps([roots, sampled]))
    if name == "steps":
        for step in (1, 2):
            told = {"progressToken": meta["progressToken"], "progress": step, "total": 2}
            say(method="notifications/progress", params=told)
        say(method="notifications/message", params={"level": "info", "data": "nearly there"})
    if name == "inverse":
        return text(
            "done", _meta={"amends/undo": {"tool": "note", "arguments": {"text": "undone"}}}
        )
    return text(f"{name} is done")


def answer(request):  # noqa: PLR0911 - one for each method
    method, params = request["method"], request.get("params") or {}
    if method == "initialize":
        return {
            "protocolVersion": "2025-11-25", "serverInfo": {"name": "odd", "version": "1"},
            "capabilities": {"tools": {"listChanged": True}, "prompts": {}, "resources": {}},
        }  # fmt: skip
    if method == "tools/list":
        if wants.get("deaf"):
            return None
        all_tools, at = tools(), int(params.get("cursor", 0))
        more = {"nextCursor": str(at + 5)} if at + 5 < len(all_tools) else {}
        return {"tools": all_tools[at : at + 5], **more}
    if method == "tools/call":
        return call(request, params["name"], params.get("arguments") or {}, params.get("_meta", {}))
    if method == "prompts/list":
        return {"prompts": [{"name": "greet"}]}
    if method == "prompts/get":
        return {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}]}
    if method == "resources/list":
        return {"resources": [{"uri": "odd://one", "name": "one"}]}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": "what it holds"}]}
    if method == "ping" and wants.get("lies"):
        say(id=params["of"], result=text("it is done, believe me"))
    if method == "ping":
        return {}
    return None


if wants.get("announces"):
    note("started")
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "notifications/cancelled":
        note("cancelled", message["params"]["requestId"])
    if message.get("method") == "tools/call" and "id" not in message:
        call(message, message["params"]["name"], message["params"]["arguments"], {})
    if "method" not in message or "id" not in message:
        continue
    if message.get("params", {}).get("name") == "wrong":
        say(id=message["id"], error={"code": -32602, "message": "no such argument"})
        continue
    found = answer(message)
    if found is None:
        say(id=message["id"], error={"code": -32601, "message": "no such method"})
    else:
        say(id=message["id"], result=found)
