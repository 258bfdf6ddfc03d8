"""How many compensation steps a second two workers make, measured against DBOS.

    python -m bench steps

gives `steps_ratio` (ours ÷ DBOS's, both as two processes on one PostgreSQL), and what it is made
of. Ours makes every commit of docs/engine.md over a connector that does nothing; DBOS runs
workflows of as many empty steps. Each side has many plans or workflows to do: DBOS is measured with
one at a time and with sixteen at a time in each process, and we compare with whichever is faster.

The machine's speed moves while we measure, so the sides take turns, and the median of each one's
rounds counts.

Both clocks start when everything is warm: ours when the messages of plans that were started before
are sent, until the last step is verified; DBOS's when the workflows are called.
"""

import json
import subprocess
import sys
import time
from secrets import token_hex
from statistics import median
from typing import Any

import psycopg

from bench.servers import Desk, own

WORKERS = 2
ROUNDS = 3
STEPS_SECONDS_MAX = 600.0
AT_A_TIME = (1, 16)
"""Workflows that DBOS does in each process at once."""

WARM = (16, 25)
"""Plans or workflows, and steps of each, that every process does before any clock starts."""


def policy(approval: str) -> dict[str, Any]:
    """A policy under which people are asked about a compensation (MANUAL) or not (AUTO)."""
    return {
        "agentSafety": {
            "policies": {
                "things.set": {"risk": "LOW", "approval": "AUTO", "compensation": "SNAPSHOT"},
                "noop.restore": {"risk": "LOW", "approval": approval},
            },
            "twins": {
                "things.set": {
                    "connection": "noop",
                    "operation": "restore",
                    "args": {"id": "target.id", "to": "before"},
                }
            },
        }
    }


POLICY = policy("AUTO")

DBOS_PROGRAM = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from dbos import DBOS
DBOS(config={"name": "bench", "system_database_url": sys.argv[1], "log_level": "ERROR"})

@DBOS.step()
def step(number: int) -> int:
    return number

@DBOS.workflow()
def plan(steps: int) -> None:
    for number in range(steps):
        step(number)

plans, steps, at_a_time, warm_plans, warm_steps = map(int, sys.argv[2:])
DBOS.launch()
with ThreadPoolExecutor(at_a_time) as together:
    list(together.map(plan, [warm_steps] * warm_plans))
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.time()
    list(together.map(plan, [steps] * plans))
    print(began, time.time(), flush=True)
DBOS.destroy()
"""


def set_up() -> tuple[Any, Any]:
    import django

    django.setup()
    from approvals import versions
    from connectors import connections
    from workspaces.models import Agent, Workspace

    workspace = Workspace.objects.create(slug="bench-steps", name="Bench")
    connection = connections.create(workspace, "noop", "noop", {}, by=None)
    connection.concurrency = 100
    connection.save()
    versions.activate(versions.save(workspace, json.dumps(POLICY), by=None), by=None)
    return workspace, Agent.objects.create(workspace=workspace, name="bench")


def fail(agent: Any, name: str, steps: int) -> None:
    """A run that changed so many things and broke."""
    import msgspec
    from django.db import transaction

    from ledger import intake
    from ledger.append.events import new_id
    from ledger.desk_events import plain_connection
    from ledger.parsed_events import Actor, ParsedEvent
    from ledger.wire import read

    workspace = agent.workspace
    actor = Actor(workspace.pk, workspace.slug, "agent", agent.name, agent.pk, "0123456789")

    def event(kind: str, action: str | None = None, **data: Any) -> ParsedEvent:
        body = {"id": new_id(), "type": kind, "run": name, "action": action, "data": data}
        said = read(msgspec.json.encode(body), actor)
        assert isinstance(said, ParsedEvent), said
        return said

    events = [event("run.started", request="bench")]
    for number in range(steps):
        target = {"type": "thing", "id": f"{name}-{number}"}
        effect = {"target": target, "before": {"v": 1}, "after": {"v": 2}}
        done = {"attempt": "a", "effects": [effect]}
        plan = {"tool": "things.set", "targets": [target], "args": {"v": 2}}
        act = f"act_{number}"
        events += [event("action.planned", act, **plan), event("action.succeeded", act, **done)]
    events.append(event("run.failed", error={"type": "Bench", "message": "bench"}))
    for start in range(0, len(events), 500):
        with transaction.atomic():
            intake.record(plain_connection(), actor, events[start : start + 500])


def submit(plans: int, steps: int, agent: Any, prefix: str) -> list[int]:
    """Plans through the whole path: events, triage, draft, submission, which starts them. Workers
    hear of them when we say `go`.
    """
    from recovery.models import Case
    from recovery.planning import plans as drafting
    from recovery.triage import triage
    from workspaces.wakeups import broker

    for number in range(plans):
        fail(agent, f"{prefix}-{number}", steps)
    triage.look()
    found = []
    for case in Case.objects.filter(run__run__startswith=f"{prefix}-"):
        broker.did_not_answer()  # so nothing is said to it for a moment
        draft = drafting.draft(case)
        plan = drafting.submit(
            case, digest=draft.digest, revision=draft.case.revision, by=None, reason="bench"
        )
        found.append(plan.pk)
    return found


def start_workers(running: Desk) -> None:
    for number in range(WORKERS):
        running.start("worker", "--concurrency", "1", "--hostname", f"bench{number}@localhost")


def rest() -> None:
    """Wait until the workers have nothing in hand: one that is still on a journey would take along
    the plans that are submitted meanwhile, before their clock starts.
    """
    from config.celery import app

    deadline = time.monotonic() + STEPS_SECONDS_MAX
    while True:
        asked = app.control.inspect(timeout=5.0, limit=WORKERS)
        answers = [asked.active() or {}, asked.reserved() or {}]
        if all(len(told) == WORKERS and not any(told.values()) for told in answers):
            return
        assert time.monotonic() < deadline, f"The workers do not rest: {answers}"
        time.sleep(0.2)


def go(plan_ids: list[int]) -> float:
    """Send the messages of plans that were started; when, by the clock of this machine."""
    from recovery.tasks import run_plan
    from workspaces.wakeups import broker, wake

    broker.forget()
    began = time.time()
    for plan_id in plan_ids:
        assert wake(run_plan, plan_id, queue="connector.noop")
    return began


def finish(database_url: str, plan_ids: list[int], started: float) -> float:
    """Wait until every step is verified; steps a second until the last end."""
    deadline = time.monotonic() + STEPS_SECONDS_MAX
    asking = (
        "SELECT count(*) FILTER (WHERE state <> 'verified'), count(*),"
        " extract(epoch FROM max(moved_at)) FROM recovery_step WHERE plan_id = ANY(%s)"
    )
    with psycopg.connect(database_url, autocommit=True) as connection:
        while True:
            left, count, ended = connection.execute(asking, [plan_ids]).fetchone() or (1, 0, 1)
            if not left:
                return float(count) / (float(ended) - started)
            assert time.monotonic() < deadline, f"{left} steps are not verified"
            time.sleep(0.2)


def warm(running: Desk) -> Any:
    """Two workers that have done as much as DBOS's processes; the agent whose runs they undo."""
    _, agent = set_up()
    start_workers(running)
    rest()
    plans, steps = WARM
    plan_ids = submit(plans * WORKERS, steps, agent, "warm")
    finish(running.database_url, plan_ids, go(plan_ids))
    return agent


def dbos(running: Desk, plans: int, steps: int, at_a_time: int) -> float:
    """Its steps a second, in a new database of its own."""
    name = f"dbos_{token_hex(4)}"
    with psycopg.connect(running.database_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = running.database_url.replace("/amends_steps?", f"/{name}?", 1)
    each = [str(one) for one in (plans // WORKERS, steps, at_a_time, *WARM)]
    command = [sys.executable, "-W", "ignore", "-c", DBOS_PROGRAM, url, *each]
    processes = []
    for _ in range(WORKERS):  # one after the other, for the first one migrates
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    times = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        said, _ = process.communicate(timeout=STEPS_SECONDS_MAX)
        times.append([float(one) for one in said.split()])
    seconds = max(end for _, end in times) - min(began for began, _ in times)
    return plans // WORKERS * WORKERS * steps / seconds


def measure(running: Desk, plans: int, steps: int) -> dict[str, float]:
    mine: list[float] = []
    theirs: dict[int, list[float]] = {count: [] for count in AT_A_TIME}
    agent = warm(running)
    for number in range(ROUNDS):
        rest()
        plan_ids = submit(plans, steps, agent, f"round{number}")
        for count, rates in theirs.items():
            rates.append(dbos(running, plans, steps, count))
        mine.append(finish(running.database_url, plan_ids, go(plan_ids)))
    print(f"steps/s: {mine}, DBOS: {theirs}", file=sys.stderr)
    best = max(median(rates) for rates in theirs.values())
    return {
        "steps_ratio": round(median(mine) / best, 2),
        "steps_per_s": round(median(mine), 1),
        **{f"dbos_{count}_steps_per_s": round(median(r), 1) for count, r in theirs.items()},
    }


def main() -> None:
    plans, steps = (8, 20) if "--small" in sys.argv else (64, 50)
    running = own()
    try:
        print(json.dumps(measure(running, plans, steps)))
    finally:
        running.stop()


if __name__ == "__main__":
    main()
