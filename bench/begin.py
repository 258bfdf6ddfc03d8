"""What the tool boundary costs: `begin` for an auto-allowed action, in durable single-row INSERTs.

    python -m bench begin

gives `begin_ratio`, `begin_memory_ratio` (under a sum, a count and a known value) and what they are
made of: the median of three rounds, each with a web process of its own, for one may be a fifth
quicker than the next all its life. Within a round all are measured in turns and by their medians.
A policy with rules and a pause are in force, as in life.
"""

import http.client
import json
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
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
  memory.*:
    - when: 'sum(args.amount, per: target, over: "24h") > 1000 || count(per: run, over: "1h") > 99'
      approval: MANUAL
    - {when: 'known(args.to) && args.amount > 100', approval: MANUAL}
    - {approval: AUTO}
  capped.*:
    - {when: 'sum(args.amount, per: tool, over: "24h") > 600', approval: DENY}
    - {approval: AUTO}
"""
AT_ONCE, CALLS_AT_ONCE = 20, 200
CAPPED, AMOUNT = 600, 12


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
        self._opened: set[str] = set()

    def open(self, run: str) -> None:
        """Say for whom the run acts, which is what a count for a person asks."""
        from ledger.append.events import new_id

        data = {"on_behalf_of": {"id": run}}
        event = {"id": new_id(), "type": "run.started", "run": run, "data": data}
        raw = json.dumps([event]).encode()
        self._talk.request("POST", "/api/v1/events", raw, self._headers)
        self._talk.getresponse().read()

    def begin(self, tool: str = "pay.refund") -> float:
        """Seconds until the answer is in."""
        run = f"{self._name}_{(self._number + 1) // 10}"
        if tool.startswith("memory") and run not in self._opened:
            self._opened.add(run)
            self.open(run)
        start, said = self.ask(tool, run)
        assert said.get("answer") == "proceed", said
        return time.perf_counter() - start

    def ask(self, tool: str, run: str) -> tuple[float, dict[str, Any]]:
        """When it was asked, and the answer."""
        from ledger.append.events import new_id

        self._number += 1
        number = self._number
        body: dict[str, Any] = {
            "id": new_id(), "type": "action.planned", "run": run,
            "action": f"act_{number}", "n": number % 10, "attempt": f"try-{number}",
            "data": {
                "tool": tool, "args": {"amount": AMOUNT, "to": f"card {number}"},
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
        return start, json.loads(answer.read())


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
    remembered: list[float] = []
    inserts: list[float] = []
    while len(begins) < calls:
        begins += [caller.begin() for _ in range(TURN)]
        remembered += [caller.begin("memory.refund") for _ in range(TURN)]
        inserts += [inserter.insert() for _ in range(TURN)]
    begin, insert = statistics.median(begins), statistics.median(inserts)
    memory = statistics.median(remembered)
    return {
        "begin_memory_ratio": round(memory / insert, 2),
        "begin_memory_ms": round(memory * 1000, 2),
        "begin_ratio": round(begin / insert, 2),
        "begin_ms": round(begin * 1000, 2),
        "begin_p95_ms": round(sorted(begins)[int(len(begins) * 0.95)] * 1000, 2),
        "insert_ms": round(insert * 1000, 2),
    }


def past_the_cap(url: str, token: str) -> int:
    """Of calls at once under one sum: how many went on beyond it, or were not answered."""

    def some(number: int) -> list[dict[str, Any]]:
        caller = Caller(url, token, f"at_once{number}")
        times = range(CALLS_AT_ONCE // AT_ONCE)
        return [caller.ask("capped.refund", f"at_once{number}")[1] for _ in times]

    with ThreadPoolExecutor(AT_ONCE) as threads:
        said = [one for found in threads.map(some, range(AT_ONCE)) for one in found]
    went_on = len([one for one in said if one.get("answer") == "proceed"])
    unanswered = len([one for one in said if "answer" not in one])
    return abs(went_on - CAPPED // AMOUNT) + unanswered


def rounds(running: Desk, token: str, calls: int) -> dict[str, Any]:
    inserter, found, conflicts = Inserter(running.database_url), [], 0
    for number in range(ROUNDS):
        running.start_web()
        found.append(measured(Caller(running.url, token, f"round{number}"), inserter, calls))
        if number == 0:
            conflicts = past_the_cap(running.url, token)
        running.stop()
    middle = {name: statistics.median(one[name] for one in found) for name in found[0]}
    ratios = [one["begin_ratio"] for one in found]
    return middle | {"begin_ratios": ratios, "reserve_conflicts": conflicts}


def main() -> None:
    running = own()
    try:
        token, _ = prepare()
        print(json.dumps(rounds(running, token, 80 if "--small" in sys.argv else CALLS)))
    finally:
        running.stop()


if __name__ == "__main__":
    main()
