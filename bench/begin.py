"""What the tool boundary costs: `begin` for an auto-allowed action, in durable single-row INSERTs.

    python -m bench begin

gives `begin_ratio` and what it is made of: the median of three rounds, each with a web process of
its own, for one may be a fifth quicker than the next all its life. Within a round both are measured
in turns and by their medians. A policy with rules and a pause are in force, as in life.
"""

import http.client
import json
import statistics
import sys
import time
from typing import Any
from urllib.parse import urlsplit

import psycopg

from bench.servers import Desk, own

# Two seconds of each: with four hundred calls a busy moment of the machine moved the medians.
CALLS = 1_000
ROUNDS = 3
WARM_UP = 100
TURN = 20
POLICY = """
policies:
  pay.*: [{when: args.amount > 1000, approval: MANUAL}, {approval: AUTO}]
  crm.*: {approval: AUTO, compensation: SNAPSHOT}
  mail.*: {risk: HIGH, approval: MANUAL}
"""


def prepare() -> tuple[str, str]:
    """A workspace with a policy and a pause; the agent's key and the desk's address for it."""
    import django

    django.setup()
    from approvals import pauses, versions
    from workspaces import keys
    from workspaces.models import Agent, User, Workspace

    workspace = Workspace.objects.create(slug="bench", name="Bench")
    person = User.objects.create_user("ada@example.com", name="Ada")
    versions.activate(versions.save(workspace, POLICY, by=person), by=person)
    pauses.pause(workspace, "tool", "never.*", by=person, reason="a pause to look past")
    agent = Agent.objects.create(workspace=workspace, name="bench")
    return keys.create_key(agent, by=None, name="bench")[1], str(workspace.pk)


class Caller:
    """An agent on one connection that stays open; every call is of a new action."""

    def __init__(self, url: str, token: str, name: str) -> None:
        self._name = name
        parts = urlsplit(url)
        self._talk = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._number = 0

    def begin(self) -> float:
        """Seconds until the answer is in."""
        from ledger.append.events import new_id

        self._number += 1
        number = self._number
        body: dict[str, Any] = {
            "id": new_id(), "type": "action.planned", "run": f"{self._name}_{number // 10}",
            "action": f"act_{number}", "n": number % 10, "attempt": f"try-{number}",
            "data": {
                "tool": "pay.refund", "args": {"amount": 12, "to": f"card {number}"},
                "targets": [{"type": "charge", "id": f"ch_{number}"}],
                "key": f"{self._name}-{number}",
                "class": "external_reversible", "before": [{"paid": 12}],
                "intent": {"goal": "refund", "reason": "charged twice"},
            },
        }  # fmt: skip
        raw = json.dumps(body).encode()
        start = time.perf_counter()
        self._talk.request("POST", "/api/v1/actions/begin", raw, self._headers)
        answer = self._talk.getresponse()
        said = json.loads(answer.read())
        seconds = time.perf_counter() - start
        assert said.get("answer") == "proceed", said
        return seconds


class Inserter:
    """One durable row at a time, on a connection of its own."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(
            "CREATE TABLE bench_row (id bigserial PRIMARY KEY, run text, data jsonb)"
        )

    def insert(self) -> float:
        start = time.perf_counter()
        self._connection.execute(
            "INSERT INTO bench_row (run, data) VALUES (%s, %s)", ["run_1", '{"amount": 12}']
        )
        return time.perf_counter() - start


def measured(caller: Caller, inserter: Inserter, calls: int) -> dict[str, float]:
    for _ in range(WARM_UP):
        caller.begin()
        inserter.insert()
    begins: list[float] = []
    inserts: list[float] = []
    while len(begins) < calls:
        begins += [caller.begin() for _ in range(TURN)]
        inserts += [inserter.insert() for _ in range(TURN)]
    begin, insert = statistics.median(begins), statistics.median(inserts)
    return {
        "begin_ratio": round(begin / insert, 2),
        "begin_ms": round(begin * 1000, 2),
        "begin_p95_ms": round(sorted(begins)[int(len(begins) * 0.95)] * 1000, 2),
        "insert_ms": round(insert * 1000, 2),
    }


def rounds(running: Desk, token: str, calls: int) -> dict[str, Any]:
    inserter, found = Inserter(running.database_url), []
    for number in range(ROUNDS):
        running.start_web()
        found.append(measured(Caller(running.url, token, f"round{number}"), inserter, calls))
        running.stop()
    middle = {name: statistics.median(one[name] for one in found) for name in found[0]}
    return middle | {"begin_ratios": [one["begin_ratio"] for one in found]}


def main() -> None:
    running = own()
    try:
        token, _ = prepare()
        print(json.dumps(rounds(running, token, 80 if "--small" in sys.argv else CALLS)))
    finally:
        running.stop()


if __name__ == "__main__":
    main()
