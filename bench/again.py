"""What a `begin` costs that is not the usual one: a retry, a replay, a question that still waits.

    python -m bench again

gives medians in milliseconds, of one web process, each kind in turns with the others and with the
usual `begin` (`begin_first_ms`), which all of them are to be held against.
"""

import http.client
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from bench.servers import own

CALLS = 300
WARM_UP = 30
TURN = 10
POLICY = """
policies:
  pay.*: [{when: args.amount > 1000, approval: MANUAL}, {approval: AUTO}]
  mail.*: {risk: HIGH, approval: MANUAL}
  never.*: {approval: DENY}
"""


def prepare() -> str:
    """A workspace with a policy, and somebody who may approve; the agent's key."""
    import django

    django.setup()
    from approvals import versions
    from workspaces import keys, teams
    from workspaces.models import Agent, User, Workspace

    workspace = Workspace.objects.create(slug="again", name="Again")
    person = User.objects.create_user("ada@example.com", name="Ada")
    other = User.objects.create_user("ben@example.com", name="Ben")
    leads = teams.create(workspace, "leads", by=None, may=["view", "approve"])
    teams.add(leads, person, by=None)
    teams.add(leads, other, by=None)
    versions.activate(versions.save(workspace, POLICY, by=person), by=person)
    agent = Agent.objects.create(workspace=workspace, name="bench")
    return keys.create_key(agent, by=None, name="bench")[1]


class Caller:
    """An agent on one connection that stays open; call `number` has a run and a key of its own."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._talk = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def post(self, path: str, body: Any) -> tuple[float, Any]:
        raw = json.dumps(body).encode()
        start = time.perf_counter()
        self._talk.request("POST", path, raw, self._headers)
        answer = json.loads(self._talk.getresponse().read())
        return time.perf_counter() - start, answer

    def begin(self, kind: str, number: int, attempt: str, tool: str = "pay.refund") -> Any:
        from ledger.append.events import new_id

        data = {
            "tool": tool, "args": {"amount": 12, "to": f"card {number}"},
            "targets": [{"type": "charge", "id": f"ch_{number}"}], "key": f"{kind}-{number}",
            "class": "external_reversible", "before": [{"paid": 12}],
        }  # fmt: skip
        body = {
            "id": new_id(), "type": "action.planned", "run": f"{kind}_{number}", "action": "a",
            "n": 1, "attempt": attempt, "data": data,
        }  # fmt: skip
        return self.post("/api/v1/actions/begin", body)

    def end(self, kind: str, number: int, event_type: str, **data: Any) -> None:
        from ledger.append.events import new_id

        said = {"id": new_id(), "type": event_type, "run": f"{kind}_{number}", "action": "a"}
        self.post("/api/v1/events", [said | {"data": {"attempt": "1", "fence": 1} | data}])


class Kind(NamedTuple):
    """What happens `before` the call that is measured, and the answer of that."""

    before: Callable[[int], Any] | None
    call: Callable[[int], Any]
    answer: str


def kinds(caller: Caller) -> dict[str, Kind]:
    def again(kind: str, attempt: str, tool: str = "pay.refund") -> Callable[[int], Any]:
        return lambda number: caller.begin(kind, number, attempt, tool)

    def failed(number: int) -> None:
        caller.begin("retry", number, "1")
        caller.end("retry", number, "action.failed", outcome="no_effect", error={"type": "E"})

    def succeeded(number: int) -> None:
        caller.begin("replay", number, "1")
        caller.end("replay", number, "action.succeeded", result={"ok": True})

    def few(kind: str, tool: str) -> Callable[[int], Any]:
        """Twenty questions of one agent may be open, and no more."""
        return lambda number: caller.begin(kind, number % 15, "1", tool)

    asked, forbidden = few("wait", "mail.send"), few("denied", "never.x")
    return {
        "first": Kind(None, again("first", "1"), "proceed"),
        "retry": Kind(failed, again("retry", "2"), "proceed"),
        "replay": Kind(succeeded, again("replay", "2"), "replay"),
        "same_try": Kind(again("same", "1"), again("same", "1"), "proceed"),
        "busy": Kind(again("busy", "1"), again("busy", "2"), ""),
        "wait": Kind(asked, asked, "wait"),
        "denied": Kind(forbidden, forbidden, "denied"),
    }


def measured(caller: Caller, calls: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {}
    for begun in range(0, WARM_UP + calls, TURN):
        for name, kind in kinds(caller).items():
            numbers = range(begun, begun + TURN)
            for number in numbers:
                if kind.before is not None:
                    kind.before(number)
            for number in numbers:
                took, body = kind.call(number)
                assert body.get("answer", "") == kind.answer, (name, body)
                if number >= WARM_UP:
                    seconds.setdefault(name, []).append(took)
    return {f"begin_{name}_ms": round(statistics.median(found) * 1000, 2)
            for name, found in seconds.items()}  # fmt: skip


def main() -> None:
    running = own()
    try:
        token = prepare()
        running.start_web()
        small = "--small" in sys.argv
        print(json.dumps(measured(Caller(running.url, token), 40 if small else CALLS)))
    finally:
        running.stop()


if __name__ == "__main__":
    main()
