"""A storm: many plans at work in real processes, while something of theirs is broken on purpose."""

import contextlib
import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import redis
from django.db import connections, transaction
from django.db.models import F

from approvals import inbox
from approvals.models import Approval
from ledger.models import Event
from recovery import tasks
from recovery.models import Plan, Step, StepAttempt
from tests.conftest import started
from tests.crash.oracle import rest, until, violations
from tests.outside.world import World
from tests.processes import Process, Processes
from tests.recovery.engine.desk import asked, plan_for, send_event
from workspaces.wakeups import wake

PLANS = 6
REST_SECONDS_MAX = 120.0
MENDING = ("restore", "refund", "slowly", "conditional")
"""Operations that no lost answer may leave to a person."""

RECEIVED = re.compile(r"run_plan\[(\S+)\] received")

LOST = "worker was lost"
"""What a step that was taken back says of it."""

LOSSES: tuple[dict[str, Any], ...] = (
    {"fail_after": 1},
    {"reset_after": 1},
    {"truncate": 1},
    {"sleep_after": 2.0},
    {"drip": 2},
    {"fail": 1},
)


@dataclass
class Storm:
    """What a fault may break: the processes, the servers, the outside world, the messages."""

    processes: Processes
    environment: dict[str, str]
    outside: World
    make: Callable[..., Any]
    connection: Any
    chance: random.Random
    seed: int
    people: SimpleNamespace
    operations: tuple[str, ...] = MENDING
    lost_until: int = 0
    for_people: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    workers: list[Process] = field(default_factory=list)
    sweepers: list[Process] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)

    def begin(self, *, count: int = PLANS, sweeps: bool = True, **environment: str) -> None:
        """Plans of mixed operations, made while the processes start; then the hints."""
        self.environment |= environment
        with self.processes.side_by_side():
            if sweeps:
                self.sweepers = [self.processes.sweeper(**self.environment)]
            self.workers = [self.processes.worker(concurrency=3, **self.environment)]
            self.plans += [self.plan(f"s{number}") for number in range(count)]
        self.hint()

    def plan(self, name: str, count: int = 3) -> Plan:
        operation = self.chance.choice(self.operations)
        return plan_for(self.make(name, count), self.connection, operation)

    def ask_for(self, draw: Callable[[], Plan], **more: Any) -> Approval:
        """Draw up a plan and put it before people; it is one of the storm's, and waits for them.

        Both in one transaction, as when people submit one: a plan that waits for nobody is begun by
        the sweeper.
        """
        with transaction.atomic():
            plan = draw()
            approval = asked(plan, self.people.ada, **more)
        self.plans.append(plan)
        plan.refresh_from_db()
        return approval

    def grant(self, approval: Approval) -> None:
        inbox.grant(approval, by=self.people.ben, seen=approval.digest, reason="checked")

    def make_live_run(self, name: str) -> None:
        """A run with a call under way, and a lease that lives."""
        send_event(self.people.handy, f"run_{name}", "run.started", goal="help")
        planned = {"tool": "things.set", "targets": [{"type": "thing", "id": name}]}
        send_event(self.people.handy, f"run_{name}", "action.planned", "act_1", **planned)
        send_event(self.people.handy, f"run_{name}", "action.started", "act_1", attempt="a1")

    def age_tries(self, *, seconds: int) -> list[str]:
        """Let the tries that nobody knows the end of be that much older; their keys."""
        lost = list(
            self.connection.step_set.filter(plan__in=self.plans, state="unknown").values_list(
                "key", flat=True
            )
        )
        StepAttempt.objects.filter(key__in=lost).update(
            intended_at=F("intended_at") - timedelta(seconds=seconds)
        )
        return lost

    def tries(self) -> list[StepAttempt]:
        return list(StepAttempt.objects.filter(step__plan__in=self.plans))

    def told(self, kind: str = "", **data: Any) -> list[Event]:
        """What the ledger tells of steps, oldest first: moves to `kind` with these data."""
        events = Event.objects.filter(run__startswith="desk-plan-", type__startswith="step.")
        return [
            event
            for event in events.order_by("place")
            if event.type.removeprefix("step.") == kind or not kind
            if data.items() <= (event.data or {}).items()
        ]

    def everything(self) -> tuple[Any, ...]:
        """The journal, and where every plan and step stands, whoever has touched it."""
        steps = Step.objects.order_by("pk").values_list(
            "pk", "state", "fence", "claims", "moved_at"
        )
        states = Plan.objects.order_by("pk").values_list("pk", "state", "ended_at")
        return self.outside.journal(), list(steps), list(states), len(self.told())

    def stolen(self) -> list[Event]:
        """What was taken from a worker as lost."""
        return [event for event in self.told() if LOST in str((event.data or {}).get("note"))]

    def seconds_after_lease(self) -> list[float]:
        """How long after the end of its lease each of those was taken back."""
        leases: dict[tuple[str, str], datetime] = {}
        late, stolen = [], {event.event_id for event in self.stolen()}
        for event in self.told():
            place = event.run, event.action
            if event.type == "step.claimed":
                lease = timedelta(seconds=(event.data or {})["lease_seconds"])
                leases[place] = event.received_at + lease
            elif event.event_id in stolen:
                late.append((event.received_at - leases[place]).total_seconds())
        return late

    def claimed_once(self) -> bool:
        """Whether every step was claimed once, and tried once at most."""
        claims = Counter((event.run, event.action) for event in self.told("claimed"))
        tries = Counter(one.step_id for one in self.tries())
        return max(claims.values()) == 1 and max(tries.values()) == 1

    def messages(self) -> int:
        """How many messages the workers have received."""
        return sum(len(RECEIVED.findall(worker.said())) for worker in self.workers)

    def hint(self, times: int = 1) -> None:
        for _ in range(times):
            for plan in self.plans:
                wake(tasks.run_plan, plan.pk)

    def lose_answers(self, share: float, ways: tuple[dict[str, Any], ...] = LOSSES) -> None:
        """Let the outside world's answers get lost, each in its own way."""
        for number in range(PLANS):
            for thing in range(3):
                if self.chance.random() < share:
                    self.outside.mischief(f"s{number}{thing}", **self.chance.choice(ways))

    def worker(self, **environment: str) -> Process:
        worker = self.processes.worker(concurrency=2, **(self.environment | environment))
        self.workers.append(worker)
        return worker

    def some_time(self, least: float, most: float) -> None:
        time.sleep(self.chance.uniform(least, most))

    def not_met(self) -> list[str]:
        """Faults that were asked for at a point, and that nobody came to."""
        folder = Path(self.environment["FAULT_FOLDER"])
        asked = [
            one.split(":") for one in filter(None, self.environment.get("FAULT", "").split(","))
        ]
        passed = [f"{name}.{nth}" for name, _, which in asked for nth in which.split("+")]
        return [one for one in passed if not (folder / one).exists()]

    def end(self) -> list[str]:
        """Wait until every step is at rest, then ask for the invariants."""
        rest(self.plans)
        assert self.not_met() == [], "the fault was not met"
        return violations(
            self.plans,
            self.outside,
            lost_until=self.lost_until,
            for_people=self.for_people,
            changed=self.changed,
        )


def broker() -> Any:
    return started["valkey"]


def talk_to_broker() -> Any:
    return redis.Redis.from_url(broker().url, socket_timeout=2)


@contextlib.contextmanager
def administration() -> Iterator[Any]:
    with psycopg.connect(started["administration"], autocommit=True) as session:
        yield session


def restart_database() -> None:
    """At once, as a crash does it: whoever is connected finds that out."""
    postgres = started["postgres"]
    os.kill(postgres.pid, signal.SIGQUIT)
    until(lambda: not postgres.alive(), 20, "the database is down")
    postgres.start()
    connections.close_all()  # ours among them


def make_read_only(*, really: bool) -> None:
    with administration() as session:
        name, state = started["database"], "on" if really else "off"
        session.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {state}')
        session.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
        )
    connections.close_all()


def children(pid: int) -> list[int]:
    """A process and all that hang from it."""
    command = ["ps", "-o", "pid=", "--ppid", str(pid)]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    below = [int(one) for one in found.stdout.split()]
    return [pid, *(deeper for one in below for deeper in children(one))]


def stopped(process: Process) -> list[int]:
    """Those of a process's children that were stopped by SIGSTOP."""
    found = []
    for pid in children(process.pid):
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state == "T":
                found.append(pid)
    return found
