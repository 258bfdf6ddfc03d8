"""What the tool boundary costs.

    python -m bench begin again client noisy

`begin` gives `begin_ratio` (for an auto-allowed action, in durable single-row INSERTs),
`begin_memory_ratio` (under a sum, a count and a known value) and what they are made of, on a desk
of a million actions, on whose record each call's target and value are already: the median of three
rounds, each with a web process of its own, for one may be a fifth quicker than the next
all its life. Within a round all are measured in turns and by their medians. A policy with rules and
a pause are in force, as in life.

`again` gives medians in milliseconds, of one web process, of what is not the usual `begin`: a
retry, a replay, a question that still waits; each in turns with the others and with the usual one
(`begin_first_ms`), which all of them are to be held against.

`client` gives what recording an action costs an agent: one call of a tool through the client
against the bare call. It is gated (asked for, made, and its outcome put in the spool), awaited, or
only spooled (the desk is away, and the policy lets it go on). The outcomes travel behind the
agent's back.

`noisy` gives `noisy_ratio`: the 95th percentile of an agent's `begin` in a quiet workspace while
eight agents of another ask as fast as they can and wait for nothing, over the same without them;
the noisy one has a limit (`AMENDS_RATE_WORKSPACE`), as docs/running.md advises. By turns, medians
of the rounds. `noisy_unlimited_ratio` is the same without it. The noise is a process of its own.
"""

import asyncio
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psycopg

import amends
from bench.servers import Desk, p95

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
  forbidden.*: {approval: DENY}
"""
AT_ONCE, CALLS_AT_ONCE = 20, 200
CAPPED, AMOUNT = 600, 12


RUNS, RUNS_SMALL = 720_000, 2_000
"""Of 1.4 actions each."""


def prepare(runs: int = 0) -> str:
    """A workspace with a policy, a pause, and two who may approve, and so many runs behind it; the
    agent's key.
    """
    import django

    django.setup()
    from django.conf import settings

    from approvals import pauses, versions
    from approvals.policy import load
    from bench.generate import cast, fill, remember

    people = cast()
    if runs:
        with psycopg.connect(settings.DATABASE_URL) as connection:
            fill(connection, people, runs)
        rules = load(POLICY).of_tool("memory.refund").rules
        remember(settings.DATABASE_URL, [q for one in rules if one.when for q in one.when.lookups])
    versions.activate(versions.save(people.workspace, POLICY, by=people.ada), by=people.ada)
    pauses.pause(people.workspace, "tool", "never.*", by=people.ada, reason="a pause to look past")
    return people.tokens[0]


class Caller:
    """An agent on one connection that stays open."""

    def __init__(self, url: str, token: str, name: str) -> None:
        self._name = name
        parts = urlsplit(url)
        self._talk = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._number = 0
        self._opened: set[str] = set()

    def post(self, path: str, body: Any) -> tuple[float, Any]:
        """Seconds until the answer is in, and the answer."""
        raw = json.dumps(body).encode()
        start = time.perf_counter()
        self._talk.request("POST", path, raw, self._headers)
        answer = self._talk.getresponse().read()
        return time.perf_counter() - start, json.loads(answer)

    def say(self, event_type: str, run: str, data: dict[str, Any], **more: str) -> None:
        from ledger.parsed_events import new_id

        event = {"id": new_id(), "type": event_type, "run": run, "data": data}
        self.post("/api/v1/events", [event | more])

    def ask(self, tool: str, run: str, number: int, attempt: str) -> tuple[float, dict[str, Any]]:
        """The `begin` of action `number` of a run."""
        from ledger.parsed_events import new_id

        body: dict[str, Any] = {
            "id": new_id(), "type": "action.planned", "run": run,
            "action": f"act_{number}", "n": number % 10, "attempt": attempt,
            "data": {
                "tool": tool, "args": {"amount": AMOUNT, "to": f"card {number}"},
                "targets": [{"type": "charge", "id": f"ch_{number}"}],
                "key": f"{run}-{number}",
                "class": "external_reversible", "before": [{"paid": 12}],
                "intent": {"goal": "refund", "reason": "charged twice"},
            },
        }  # fmt: skip
        return self.post("/api/v1/actions/begin", body)

    def begin(self, tool: str = "pay.refund") -> float:
        """Seconds until the answer to a new action is in."""
        self._number += 1
        run = f"{self._name}_{self._number // 10}"
        if tool.startswith("memory") and run not in self._opened:
            self._opened.add(run)
            # For whom the run acts is what a count for a person asks.
            self.say("run.started", run, {"on_behalf_of": {"id": run}})
        took, said = self.ask(tool, run, self._number, f"try-{self._number}")
        assert said.get("answer") == "proceed", said
        return took


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
        name = f"at_once{number}"
        caller, times = Caller(url, token, name), range(CALLS_AT_ONCE // AT_ONCE)
        return [caller.ask("capped.refund", name, one, f"try-{one}")[1] for one in times]

    with ThreadPoolExecutor(AT_ONCE) as threads:
        said = [one for found in threads.map(some, range(AT_ONCE)) for one in found]
    went_on = len([one for one in said if one.get("answer") == "proceed"])
    unanswered = len([one for one in said if "answer" not in one])
    return abs(went_on - CAPPED // AMOUNT) + unanswered


def begin(running: Desk, *, small: bool) -> dict[str, Any]:
    token, calls = prepare(RUNS_SMALL if small else RUNS), 80 if small else CALLS
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


KINDS_CALLS, KINDS_WARM_UP, KINDS_TURN = 300, 30, 10


class Kind(NamedTuple):
    """What happens `before` the call that is measured, and the answer of that."""

    before: Callable[[int], Any] | None
    call: Callable[[int], Any]
    answer: str


def kinds(caller: Caller) -> dict[str, Kind]:
    def again(kind: str, attempt: str, tool: str = "pay.refund") -> Callable[[int], Any]:
        return lambda number: caller.ask(tool, f"{kind}_{number}", number, attempt)

    def ended(kind: str, event_type: str, **data: Any) -> Callable[[int], None]:
        first = again(kind, "1")

        def end(number: int) -> None:
            first(number)
            said = {"attempt": "1", "fence": 1} | data
            caller.say(event_type, f"{kind}_{number}", said, action=f"act_{number}")

        return end

    def few(kind: str, tool: str) -> Callable[[int], Any]:
        """Twenty questions of one agent may be open, and no more."""
        call = again(kind, "1", tool)
        return lambda number: call(number % 15)

    failed = ended("retry", "action.failed", outcome="no_effect", error={"type": "E"})
    succeeded = ended("replay", "action.succeeded", result={"ok": True})
    asked, forbidden = few("wait", "mail.send"), few("denied", "forbidden.refund")
    return {
        "first": Kind(None, again("first", "1"), "proceed"),
        "retry": Kind(failed, again("retry", "2"), "proceed"),
        "replay": Kind(succeeded, again("replay", "2"), "replay"),
        "same_try": Kind(again("same", "1"), again("same", "1"), "proceed"),
        "busy": Kind(again("busy", "1"), again("busy", "2"), ""),
        "wait": Kind(asked, asked, "wait"),
        "denied": Kind(forbidden, forbidden, "denied"),
    }


def again(running: Desk, *, small: bool) -> dict[str, float]:
    token, calls = prepare(), 40 if small else KINDS_CALLS
    running.start_web()
    measures = kinds(Caller(running.url, token, "again"))
    seconds: dict[str, list[float]] = {}
    for begun in range(0, KINDS_WARM_UP + calls, KINDS_TURN):
        for name, kind in measures.items():
            numbers = range(begun, begun + KINDS_TURN)
            for number in numbers:
                if kind.before is not None:
                    kind.before(number)
            for number in numbers:
                took, body = kind.call(number)
                assert body.get("answer", "") == kind.answer, (name, body)
                if number >= KINDS_WARM_UP:
                    seconds.setdefault(name, []).append(took)
    return {f"begin_{name}_ms": round(statistics.median(found) * 1000, 2)
            for name, found in seconds.items()}  # fmt: skip


CLIENT_CALLS, CLIENT_WARM_UP = 400, 40


def note(number: int) -> dict[str, Any]:
    return {"id": number, "text": "called back"}


def seconds(call: Callable[[int], Any], calls: int) -> float:
    """The median of one call."""
    found = []
    for number in range(CLIENT_WARM_UP + calls):
        start = time.perf_counter()
        call(number)
        found.append(time.perf_counter() - start)
    return statistics.median(found[CLIENT_WARM_UP:])


async def awaited(call: Callable[[int], Any], calls: int) -> float:
    found = []
    for number in range(CLIENT_WARM_UP + calls):
        start = time.perf_counter()
        await call(number)
        found.append(time.perf_counter() - start)
    return statistics.median(found[CLIENT_WARM_UP:])


def client(running: Desk, *, small: bool) -> dict[str, float]:
    token = prepare()
    running.start_web()
    calls = 40 if small else CLIENT_CALLS
    declared: dict[str, Any] = {
        "target": ("note", "{number}"),
        "before": lambda **_: None,
        "after": lambda result, **_: result,
        "effect_class": "internal_update",
    }
    spool = Path(tempfile.mkdtemp()) / "spool.sqlite"
    with amends.connect(running.url, token, spool=spool) as desk:
        recorded = desk.tool("crm.note", **declared)(note)

        async def note_async(number: int) -> dict[str, Any]:
            return note(number)

        recorded_async = desk.tool("crm.note", **declared)(note_async)

        async def story() -> float:
            async with desk.run("Note them"):
                found = await awaited(recorded_async, calls)
            await desk.async_driver.close()
            return found

        with desk.run("Note them"):
            gated = seconds(recorded, calls)
        in_loop = asyncio.run(story())
        desk.flush(60)
        running.stop()
        with desk.run("Note them"):
            recorded(-1)  # finds that nobody answers
            spooled = seconds(recorded, calls)
    bare = seconds(note, calls)
    return {
        "client_overhead": round((gated - bare) * 1000, 2),
        "client_gated_ms": round(gated * 1000, 2),
        "client_awaited_ms": round(in_loop * 1000, 2),
        "client_spooled_ms": round(spooled * 1000, 2),
        "client_bare_us": round(bare * 1_000_000, 2),
    }


AGENTS = 8
PER_MINUTE = 1_200
NOISY_ROUNDS, NOISY_CALLS, NOISY_WARM_UP = 5, 200, 50
SETTLE_SECONDS = 2.0
"""Until the noise is at its rate, and a burst of its limit is used up."""

NOISE = """
import sys, threading
from bench.begin import Caller
url, token, agents = sys.argv[1:]
def make(name):
    caller, number = Caller(url, token, name), 0
    while True:
        number += 1
        caller.ask("pay.refund", f"{name}_{number}", number, f"try-{number}")
for one in range(int(agents)):
    threading.Thread(target=make, args=[f"noise{one}"]).start()
"""


def noisy(running: Desk, *, small: bool) -> dict[str, Any]:
    import django

    django.setup()
    from bench.generate import cast
    from workspaces.models import Workspace

    quiet, loud = cast("quiet"), cast("loud")
    running.start_web()
    caller, calls = (
        Caller(running.url, quiet.tokens[0], "quiet"),
        NOISY_CALLS // 4 if small else NOISY_CALLS,
    )
    for _ in range(NOISY_WARM_UP):
        caller.begin()
    found: dict[str, Any] = {}
    for name, limit in (("noisy", PER_MINUTE), ("noisy_unlimited", None)):
        Workspace.objects.filter(pk=loud.workspace.pk).update(rate_workspace=limit)
        rounds = [_round(running.url, caller, loud.tokens[0], calls) for _ in range(NOISY_ROUNDS)]
        found[f"{name}_ratio"] = round(statistics.median(b / a for a, b in rounds), 2)
        found[f"{name}_p95_ms"] = round(statistics.median(b for _, b in rounds) * 1000, 2)
    found["quiet_p95_ms"] = round(statistics.median(a for a, _ in rounds) * 1000, 2)
    return found


def _round(url: str, caller: Caller, token: str, calls: int) -> tuple[float, float]:
    """The 95th percentile alone, and beside the noise, in seconds."""
    alone = p95(caller.begin() for _ in range(calls))
    command = [sys.executable, "-W", "ignore", "-c", NOISE, url, token, str(AGENTS)]
    with subprocess.Popen(command) as noise:
        try:
            time.sleep(SETTLE_SECONDS)
            beside = p95(caller.begin() for _ in range(calls))
        finally:
            noise.kill()
    return alone, beside
