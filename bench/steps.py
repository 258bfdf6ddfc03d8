"""The engine: steps a second, a long plan, and how soon after a person's yes a system is called.

    python -m bench steps approve unwind

`steps` gives `steps_ratio` (ours ÷ DBOS's, both as two processes on one PostgreSQL), and what it
is made of. Ours makes every commit of docs/engine.md over a connector that does nothing; DBOS runs
workflows of as many empty steps. Each side has many plans or workflows to do: DBOS is measured with
one at a time and with sixteen at a time in each process, and we compare with whichever is faster.

The machine's speed moves while we measure, so the sides take turns, and the median of each one's
rounds counts.

Both clocks start when everything is warm: ours when the messages of plans that were started before
are sent, until the last step is verified; DBOS's when the workflows are called.

`approve` gives `approve_to_call_p95_ms`: from the moment in which the decision is posted to the one
in which the connector is called, with the intent committed between them. No sweeper runs, so each
one came by its message.

`unwind` gives of an approved plan of a thousand steps `unwind_step_ms` (median from the end of one
step to the end of the next, the plan alone with one worker), `unwind_growth` (the last quarter of
its steps ÷ the first: 1 is linear), and the seconds that its preview, its submission, its approval
and its page take.
"""

import itertools
import json
import subprocess
import sys
import time
from secrets import token_hex
from statistics import median
from typing import Any

import psycopg

from bench.servers import Browser, Desk, p95

WORKERS = 2
ROUNDS = 3
STEPS_SECONDS_MAX = 600.0
REST_SECONDS_MAX = 60.0
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


def set_up(approval: str) -> Any:
    """The cast of a workspace whose compensations are asked about (MANUAL) or not (AUTO)."""
    import django

    django.setup()
    from approvals import versions
    from bench.generate import cast
    from connectors import connections

    people = cast()
    connection = connections.create(people.workspace, "noop", "noop", {}, by=None)
    connection.concurrency = 100
    connection.save()
    document = json.dumps(policy(approval))
    versions.activate(versions.save(people.workspace, document, by=None), by=None)
    return people


def fail(agent: Any, name: str, steps: int) -> None:
    """A run that changed so many things and broke."""
    import msgspec
    from django.db import transaction

    from ledger import intake
    from ledger.drivers import plain_connection
    from ledger.parsed_events import Actor, ParsedEvent, new_id
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


def submitted(case: Any, by: Any = None) -> Any:
    """The case's plan, drafted and submitted."""
    from recovery.planning import plans

    draft = plans.draft(case)
    return plans.submit(
        case, digest=draft.digest, revision=draft.case.revision, by=by, reason="bench"
    )


def submit(plans: int, steps: int, agent: Any, prefix: str) -> list[int]:
    """Plans through the whole path: events, triage, draft, submission, which starts them. Workers
    hear of them when we say `go`.
    """
    from recovery.models import Case
    from recovery.triage import triage
    from workspaces.wakeups import broker

    for number in range(plans):
        fail(agent, f"{prefix}-{number}", steps)
    triage.look()
    found = []
    for case in Case.objects.filter(run__run__startswith=f"{prefix}-"):
        broker.did_not_answer()  # so nothing is said to it for a moment
        found.append(submitted(case).pk)
    return found


def start_workers(running: Desk) -> None:
    for number in range(WORKERS):
        running.start("worker", "--concurrency", "1", "--hostname", f"bench{number}@localhost")


def rest() -> None:
    """Wait until all workers are up and have nothing in hand: one that is still on a journey would
    take along the plans that are submitted meanwhile, before their clock starts. A message that a
    worker has taken is unacknowledged until its task is done.
    """
    import redis
    from django.conf import settings

    from config.celery import queues
    from workspaces.models import Heartbeat

    url = settings.BROKER_URL.replace("redis+socket://", "unix://", 1)
    deadline = time.monotonic() + REST_SECONDS_MAX
    with redis.Redis.from_url(url) as broker:
        while True:
            up = Heartbeat.objects.filter(name__startswith="worker@").count()
            left = broker.hlen("unacked") + sum(broker.llen(name) for name in queues())
            if up == WORKERS and not left:
                return
            told = f"{up} of {WORKERS} workers are up, {left} messages are in hand"
            assert time.monotonic() < deadline, told
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
    agent = set_up("AUTO").agents[0]
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


def against_dbos(running: Desk, *, small: bool) -> dict[str, float]:
    plans, steps = (8, 20) if small else (64, 50)
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


DECISIONS = 60
CALL_SECONDS_MAX = 30.0
CALLED = """
SELECT extract(epoch FROM at) - milliseconds / 1000.0 FROM connectors_calllog
WHERE method = 'apply' AND target = %s
"""


def question(people: Any, name: str) -> Any:
    """A plan of one step that Ada submitted, and what Ben is asked."""
    from approvals.models import Approval
    from recovery.models import Case
    from recovery.triage import triage

    fail(people.agents[0], name, 1)
    triage.look()
    plan = submitted(Case.objects.get(run__run=name), by=people.ada)
    return Approval.objects.get(pk=plan.approval_id)


def waited(database: Any, ben: Browser, approval: Any, name: str) -> float:
    """Milliseconds from the post to the call, by the clock of this one machine."""
    path = f"/w/{approval.workspace.slug}/approvals/{approval.pk}/decide/"
    posted = time.time()
    ben.post(path, {"decision": "grant", "digest": approval.digest, "reason": "bench"})
    while True:
        called = database.execute(CALLED, [f"thing/{name}-0"]).fetchone()
        if called is not None:
            return 1_000 * (float(called[0]) - posted)
        assert time.time() - posted < CALL_SECONDS_MAX, f"{name} was approved and not called"
        time.sleep(0.01)


def approve_to_call(running: Desk, *, small: bool) -> dict[str, float]:
    decisions = 10 if small else DECISIONS
    people = set_up("MANUAL")
    from bench.generate import cookie_of

    running.start_web()
    running.start_worker()
    ben = Browser(running.url, cookie_of(people.ben))
    names = [f"approve-{number}" for number in range(decisions + 5)]
    with psycopg.connect(running.database_url, autocommit=True) as database:
        found = [waited(database, ben, question(people, name), name) for name in names]
    found = sorted(found[5:])  # the first ones make connections and prepare statements
    return {
        "approve_to_call_p95_ms": round(p95(found), 1),
        "approve_to_call_median_ms": round(found[len(found) // 2], 1),
    }


LONG_STEPS = 1_000
ENDS = "SELECT extract(epoch FROM moved_at) FROM recovery_step WHERE plan_id = %s ORDER BY position"


def unwind(running: Desk, *, small: bool) -> dict[str, float]:
    people = set_up("MANUAL")
    from approvals import inbox
    from approvals.models import Approval
    from bench.generate import cookie_of
    from recovery.models import Case
    from recovery.planning import plans
    from recovery.triage import triage

    running.start_web()
    running.start_worker(concurrency=1)
    fail(people.agents[0], "long", 100 if small else LONG_STEPS)
    triage.look()
    case = Case.objects.get(run__run="long")
    found: dict[str, float] = {}
    begun = time.monotonic()
    draft = plans.draft(case)
    found["unwind_preview_s"] = time.monotonic() - begun
    begun = time.monotonic()
    plan = plans.submit(
        case, digest=draft.digest, revision=draft.case.revision, by=people.ada, reason="bench"
    )
    found["unwind_submit_s"] = time.monotonic() - begun
    begun = time.monotonic()
    assert plan.approval_id is not None
    approval = Approval.objects.get(pk=plan.approval_id)
    inbox.grant(approval, by=people.ben, seen=approval.digest, reason="bench")
    found["unwind_approve_s"] = time.monotonic() - begun
    finish(running.database_url, [plan.pk], started=time.time())
    with psycopg.connect(running.database_url) as connection:
        ends = [float(end) for (end,) in connection.execute(ENDS, [plan.pk])]
    gaps = [1_000 * (later - earlier) for earlier, later in itertools.pairwise(ends)]
    quarter = len(gaps) // 4
    first, last = median(gaps[:quarter]), median(gaps[-quarter:])
    found |= {"unwind_step_ms": median(gaps), "unwind_growth": last / first}
    ada = Browser(running.url, cookie_of(people.ada))
    page = f"/w/{people.workspace.slug}/cases/{case.pk}/"
    ada.took(page)
    milliseconds, body = ada.fetched(page)
    found |= {"unwind_page_s": milliseconds / 1_000, "unwind_page_kib": len(body) / 1024}
    return {name: round(value, 2) for name, value in found.items()}
