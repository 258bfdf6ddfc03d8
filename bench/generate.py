"""A desk that has been at work for three months: runs, actions, effects, events, cases.

    DATABASE_URL=… python -m bench.generate --runs 1000000

writes them by COPY straight into the tables and prints who may look at it, as JSON. Every tenth run
has an open case and every tenth a closed one.
"""

import argparse
import json
import random
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from bench import words
from bench.words import Deed

CHUNK_RUNS = 20_000
EVERY_OPEN = 10
DAYS = 85
CUSTOMERS = 5_000
STUCK_SECONDS = 900
WAITING_APPROVALS_MAX = 500
CORRECTIONS_EVERY = 4


@dataclass(frozen=True, slots=True)
class Made:
    """What was made, and how to come in."""

    slug: str
    runs: int
    cookie: str
    approver_cookie: str
    token: str
    case: int
    closed_case: int
    run: str
    event: str
    approval: int
    seconds: float

    def page(self, path: str) -> str:
        return f"/w/{self.slug}/{path}"


@dataclass
class Life:
    """Makes rows; ids and ledger places are counted here, for the tables are empty."""

    workspace_id: int
    slug: str
    agents: list[tuple[int, str]]
    causes: dict[str, int]
    team_id: int
    total: int
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    action_id: int = 0
    case_id: int = 0
    approval_id: int = 0
    place: int = 0
    event: str = ""

    def __post_init__(self) -> None:
        from approvals.models import Approval, Requirement
        from bench.copying import Table
        from ledger.models import Action, Attempt, Effect, Event, EventKey, Run
        from recovery.models import Case, Correction

        self.tables = {
            "run": Table(Run),
            "action": Table(Action),
            "attempt": Table(Attempt, without=["id"]),
            "effect": Table(Effect, without=["id"]),
            "event": Table(Event),
            "key": Table(EventKey),
            "case": Table(Case),
            "correction": Table(Correction, without=["id"]),
            "approval": Table(Approval),
            "requirement": Table(Requirement, without=["id"]),
        }

    def runs(self, numbers: range) -> dict[str, list[Any]]:
        rows: dict[str, list[Any]] = defaultdict(list)
        for number in numbers:
            self.run(number, rows)
        return rows

    def run(self, number: int, rows: dict[str, list[Any]]) -> None:
        """One run: of one action, or of three where it has a case."""
        pick = self.chance.random
        agent = self.agents[number % len(self.agents)]
        deed = words.DEEDS[int(pick() * len(words.DEEDS))]
        customer = int(pick() * CUSTOMERS)
        has_case = number % EVERY_OPEN < 2
        told = Told(
            number=number + 1,
            run=f"run_{number + 1:07d}",
            agent_id=agent[0],
            agent=agent[1],
            deed=deed,
            customer=f"c-{customer}",
            name=f"{words.FIRST_NAMES[customer % 20]} {words.LAST_NAMES[customer // 20 % 20]}",
            request=words.WISHES[int(pick() * 5)].format(city=words.CITIES[int(pick() * 100)]),
            at=self.now - timedelta(seconds=(1 - number / self.total) * DAYS * 86400),
            failed=has_case,
            actions=3 if has_case else 1,
        )
        first = self.place + 1
        if has_case:
            self.say(rows, told, "run.started", {"request": told.request})
        for n in range(1, told.actions + 1):
            self.action(rows, told, n)
        self.say(rows, told, "run.failed" if has_case else "run.completed", {"summary": "done"})
        rows["run"].append(self._run(told, first))
        if has_case:
            self.case(rows, told, is_open=number % EVERY_OPEN == 0)

    def _run(self, told: "Told", first: int) -> Any:
        error = {"type": told.deed.error, "message": told.deed.message}
        return self.tables["run"].row(
            id=told.number, workspace_id=self.workspace_id, run=told.run, agent_id=told.agent_id,
            model=words.MODELS[told.number % 4], request=told.request, customer=told.customer,
            customer_name=told.name, state="failed" if told.failed else "completed",
            on_behalf_of=json.dumps({"id": told.customer, "name": told.name}),
            error=json.dumps(error) if told.failed else None,
            started_at=told.at, ended_at=told.at + timedelta(seconds=40),
            last_event_at=told.at + timedelta(seconds=40), first_place=first,
            last_place=self.place, lease_until=told.at + timedelta(seconds=STUCK_SECONDS),
            revision=told.actions + 2, seen_revision=told.actions + 2, action_count=told.actions,
            search_revision=told.actions + 2, effect_count=told.actions,
            search=f"{told.request} {told.run} {told.customer} {told.name} {told.deed.tool}",
        )  # fmt: skip

    def action(self, rows: dict[str, list[Any]], told: "Told", n: int) -> None:
        deed, at = told.deed, told.at + timedelta(seconds=n)
        target = {"type": deed.target, "id": f"{deed.target[:1].upper()}{told.number:06X}{n}"}
        failed = told.failed and n == told.actions
        plan = {"tool": deed.tool, "targets": [target], "args": {"n": n, "why": told.request}}
        first = self.place + 1
        if told.failed:
            self.say(rows, told, "action.planned", plan, n)
            self.say(rows, told, "action.failed" if failed else "action.succeeded", {"n": n}, n)
        self.action_id += 1
        rows["action"].append(
            self.tables["action"].row(
                id=self.action_id, workspace_id=self.workspace_id, run_id=told.number,
                agent_id=told.agent_id, action=f"act_{n}", n=n, first_place=first,
                last_place=self.place, tool=deed.tool, action_class=deed.kind, risk=deed.risk,
                key=f"{told.run}-{n}", targets=json.dumps([target]), args=json.dumps(plan["args"]),
                state="failed" if failed else "succeeded", planned_at=at, started_at=at,
                finished_at=at + timedelta(seconds=1),
                error=json.dumps({"type": deed.error, "message": deed.message}) if failed else None,
            )
        )  # fmt: skip
        if told.failed:
            outcome = "no_effect" if failed else "succeeded"
            rows["attempt"].append(
                self.tables["attempt"].row(action_id=self.action_id, attempt="a1", state=outcome,
                                           started_at=at, finished_at=at + timedelta(seconds=1))
            )  # fmt: skip
        if not failed:
            rows["effect"].append(
                self.tables["effect"].row(
                    workspace_id=self.workspace_id, action_id=self.action_id, position=0,
                    target_type=target["type"], target_id=target["id"],
                    before=json.dumps({"status": "open", "city": "Porto"}), has_before=True,
                    after=json.dumps({"status": "moved", "city": "Lisbon"}), has_after=True,
                    reversibility=deed.reversibility,
                )
            )  # fmt: skip

    def say(
        self, rows: dict[str, list[Any]], told: "Told", kind: str, data: Any, n: int = 0
    ) -> None:
        self.place += 1
        at, event_id = told.at + timedelta(seconds=n), f"e-{self.place}"
        rows["event"].append(
            self.tables["event"].row(
                place=self.place, received_at=at, workspace_id=self.workspace_id,
                event_id=event_id, type=kind, time=at, run=told.run, n=n,
                action=f"act_{n}" if n else "", actor_kind="agent", actor=told.agent,
                key_prefix="0123456789", trusted=False, data=json.dumps(data),
                salt=b"s" * 32, digest=b"d" * 32,
            )
        )  # fmt: skip
        if told.failed:
            self.event = event_id
            rows["key"].append(
                self.tables["key"].row(workspace_id=self.workspace_id, event_id=event_id,
                                       content=b"c" * 32, place=self.place, received_at=at)
            )  # fmt: skip

    def case(self, rows: dict[str, list[Any]], told: "Told", *, is_open: bool) -> None:
        deed = told.deed
        self.case_id += 1
        target = f"{deed.target} {deed.target[:1].upper()}{told.number:06X}3"
        headline = (
            f"Agent “{told.agent}” {deed.verb} 2 {deed.target}s, then {deed.tool} failed:"
            f" {deed.message}"
        )
        rank = ["low", "medium", "high", "critical"].index(deed.risk)
        closed: dict[str, Any] = {"state": "closed", "closed_at": told.at + timedelta(hours=3),
                                  "outcome": "restored", "closing_reason": "put back",
                                  "corrections_drafted_at": told.at}  # fmt: skip
        said = (headline, deed.tool, target, told.customer, told.run, told.name, told.request)
        rows["case"].append(
            self.tables["case"].row(
                **({"state": "open"} if is_open else closed),
                id=self.case_id, workspace_id=self.workspace_id, run_id=told.number,
                agent_id=told.agent_id, cause_id=self.causes[deed.tool], reasons="{run_failed}",
                evidence=json.dumps([{"code": "run_failed", "key": "run_failed", "words": "…"}]),
                headline=headline, risk=deed.risk, risk_rank=rank, failed_action_id=self.action_id,
                failed_tool=deed.tool, failed_target=target, customer=told.customer,
                customer_name=told.name, request=told.request, suggestion="compensate",
                suggestion_reason="Two effects stand.", suggestion_text=deed.suggestion,
                reversibility=deed.reversibility, unknown_count=int(told.number % 40 == 1),
                needs_approval="operators" if rank > 1 else "", standing_count=2 * is_open,
                amount_minor=1286_00 if deed.target == "charge" else None,
                currency="USD" if deed.target == "charge" else "",
                failed_at=told.at + timedelta(seconds=40), opened_at=told.at,
                due_at=told.at + timedelta(days=DAYS + 1 - told.number % 3),
                considered_revision=1, search=" ".join(said),
            )
        )  # fmt: skip
        if not is_open and self.case_id % CORRECTIONS_EVERY == 0:
            rows["correction"].append(self._correction(told))
        self.approval(rows, told, is_open=is_open)

    def _correction(self, told: "Told") -> Any:
        return self.tables["correction"].row(
            workspace_id=self.workspace_id, case_id=self.case_id, reference=f"AM-{self.case_id}",
            person_id=told.customer, person_name=told.name, state="published", facts="{}",
            title="We put your booking right", published_at=told.at, drafted_at=told.at,
        )  # fmt: skip

    def approval(self, rows: dict[str, list[Any]], told: "Told", *, is_open: bool) -> None:
        """Every eighth case had a question; the newest of the open ones are still unanswered."""
        if self.case_id % 8 > 1:
            return
        left = (self.total - told.number) / EVERY_OPEN / 4
        waits = is_open and left < WAITING_APPROVALS_MAX
        self.approval_id += 1
        expires = self.now + timedelta(hours=20) if waits else told.at + timedelta(hours=24)
        state = ("", "waiting") if waits else ("granted", "used")
        rows["approval"].append(
            self.tables["approval"].row(
                id=self.approval_id, workspace_id=self.workspace_id, subject_kind="action",
                action_id=self.action_id, subject_key=f"{told.agent_id} {told.run}",
                run_ref=told.run, subject=json.dumps({"kind": "action", "key": told.run}),
                digest="d" * 64, calls="[]", rules="[]", headline=told.deed.suggestion,
                previews=json.dumps([{"kind": "http", "title": told.deed.suggestion}]),
                risk=told.deed.risk, agent_id=told.agent_id, was=state[0], state=state[1],
                asked_at=told.at, expires_at=expires,
                decided_at=None if waits else told.at, used_at=None if waits else told.at,
            )
        )  # fmt: skip
        rows["requirement"].append(
            self.tables["requirement"].row(approval_id=self.approval_id, team_id=self.team_id)
        )


@dataclass(frozen=True, slots=True)
class Told:
    """One run's story."""

    number: int
    run: str
    agent_id: int
    agent: str
    deed: Deed
    customer: str
    name: str
    request: str
    at: datetime
    failed: bool
    actions: int


ORDER = ("run", "action", "attempt", "effect", "event", "key", "case", "correction", "approval",
         "requirement")  # fmt: skip
WORDED = {
    "run": "array_to_tsvector(ARRAY['inworkspace' || workspace_id, 'instate' || state])",
    "case": "''::tsvector",
}
"""Tables with words to be found by, and the lexemes they have besides their text."""


def write(connection: psycopg.Connection[Any], life: Life, rows: dict[str, list[Any]]) -> None:
    """One chunk, parents first; a case's words become a vector on their way in.

    Foreign keys are not checked on the way: these rows are right, and there are millions.
    """
    connection.execute("SET session_replication_role = replica")
    for name in ORDER:
        if name in WORDED:
            copy_worded(connection, life, name, rows[name])
        else:
            life.tables[name].copy(connection, rows[name])
    connection.commit()


def copy_worded(
    connection: psycopg.Connection[Any], life: Life, name: str, rows: list[Any]
) -> None:
    """Rows with words to be found by: by way of a staging table, where they are still text."""
    table = life.tables[name]
    connection.execute(f"TRUNCATE staged_{name}")
    table.copy(connection, rows, into=f"staged_{name}")
    columns = ", ".join(f'"{one}"' for one in table.defaults)
    chosen = columns.replace('"search"', f"to_tsvector('simple', search) || {WORDED[name]}")
    connection.execute(
        f"INSERT INTO {table.name} ({columns}) SELECT {chosen} FROM staged_{name}"  # noqa: S608
    )


def stage(connection: psycopg.Connection[Any], life: Life) -> None:
    for name in WORDED:
        connection.execute(
            f"CREATE TEMP TABLE staged_{name} (LIKE {life.tables[name].name} INCLUDING DEFAULTS)"
        )
        connection.execute(f"ALTER TABLE staged_{name} ALTER search TYPE text")


def live(runs: int) -> Made:
    """Write everything; Django is set up, and the database is empty but migrated."""
    from django.conf import settings

    from bench.copying import chunks, restart_sequences
    from bench.people import cast, cookie_of
    from ledger import partitions

    begun, people = time.monotonic(), cast()
    for weeks in (13, 9, 4):
        partitions.make_ahead(datetime.now(UTC) - timedelta(weeks=weeks))
    causes = {deed.tool: _cause(people.workspace, deed, runs) for deed in words.DEEDS}
    team_id = people.workspace.teams.get(name="approvers").pk
    agents = [(agent.pk, agent.name) for agent in people.agents]
    life = Life(people.workspace.pk, people.workspace.slug, agents, causes, team_id, runs)
    with psycopg.connect(settings.DATABASE_URL) as connection:
        stage(connection, life)
        for numbers in chunks(runs, CHUNK_RUNS):
            write(connection, life, life.runs(numbers))
            spent = time.monotonic() - begun
            print(f"  {numbers.stop:,} runs in {spent:.0f} s", file=sys.stderr)
        restart_sequences(connection, "ledger_run", "ledger_action", "recovery_case",
                          "approvals_approval")  # fmt: skip
        connection.execute("SELECT setval('ledger_place', %s)", [life.place])
        connection.commit()
        connection.autocommit = True
        connection.execute("VACUUM (ANALYZE)")
    return Made(
        slug=people.workspace.slug, runs=runs, cookie=cookie_of(people.ada),
        approver_cookie=cookie_of(people.ben), token=people.tokens[0], case=life.case_id - 1,
        closed_case=life.case_id, run=f"run_{runs - 8:07d}", event=life.event,
        approval=life.approval_id, seconds=round(time.monotonic() - begun, 1),
    )  # fmt: skip


def _cause(workspace: Any, deed: Deed, runs: int) -> int:
    from recovery.models import Cause
    from recovery.triage.causes import Likeness, keep

    cause = keep(workspace, Likeness(deed.tool, deed.error, deed.message))
    Cause.objects.filter(pk=cause.pk).update(case_count=runs // EVERY_OPEN * 2 // len(words.DEEDS))
    return cause.pk


def main() -> None:
    import django

    parser = argparse.ArgumentParser(prog="python -m bench.generate")
    parser.add_argument("--runs", type=int, default=1_000_000)
    options = parser.parse_args()
    django.setup()
    print(json.dumps(asdict(live(options.runs))))


if __name__ == "__main__":
    main()
