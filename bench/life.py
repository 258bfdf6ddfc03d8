"""The generated desk: what happened in each of its runs, as rows of the ledger and of its cases.

They are written by COPY straight into the product's own tables, with the defaults of the models.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import psycopg
from django.contrib.postgres.fields import ArrayField
from django.db.models import JSONField, Model
from django.db.models.fields import Field

Row = tuple[Any, ...]


class Table:
    """One table: `row(…)` fills in what is not said; JSON is given as text, an array as `{a,b}`."""

    def __init__(self, model: type[Model], *, without: Iterable[str] = ()) -> None:
        meta = model._meta
        fields = [one for one in meta.concrete_fields if one.column and not one.generated]
        self.name = meta.db_table
        left_out = set(without)
        self.defaults: dict[str, Any] = {
            str(field.column): _default(field) for field in fields if field.column not in left_out
        }

    def row(self, **values: Any) -> Row:
        return tuple({**self.defaults, **values}.values())

    def copy(
        self, connection: psycopg.Connection[Any], rows: Iterable[Row], *, into: str = ""
    ) -> None:
        columns = ", ".join(f'"{column}"' for column in self.defaults)
        statement = f"COPY {into or self.name} ({columns}) FROM STDIN"
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)


def _default(field: Field[Any, Any]) -> Any:
    if getattr(field, "auto_now_add", False) or getattr(field, "auto_now", False):
        return datetime.now(UTC)
    value = field.get_default()
    if isinstance(field, ArrayField):
        return "{}"
    if isinstance(field, JSONField) and value is not None:
        return json.dumps(value)
    return value


def chunks(total: int, size: int) -> Iterator[range]:
    for start in range(0, total, size):
        yield range(start, min(start + size, total))


def restart_sequences(connection: psycopg.Connection[Any], *tables: str) -> None:
    """Let ids go on behind those that were copied in."""
    for table in tables:
        connection.execute(
            f"SELECT setval(pg_get_serial_sequence('{table}', 'id'),"  # noqa: S608 - our own names
            f" (SELECT greatest(max(id), 1) FROM {table}))"
        )


# What the generated desk talks about: words of a few frequencies, for searches of all kinds.
#
# “please” is in every request, each city in about one case of a hundred, and a booking code in
# one.


class ToolTemplate(NamedTuple):
    """One tool, what it does to what, and how it fails."""

    tool: str
    kind: str
    target: str
    verb: str
    error: str
    message: str
    risk: str
    reversibility: str
    suggestion: str


TOOLS = (
    ToolTemplate("update_reservation_flights", "internal_update", "reservation",
        "changed flights on", "Timeout", "The booking system did not answer within 30 s", "high",
        "exact", "Restore the flights"),
    ToolTemplate("cancel_reservation", "external_reversible", "reservation", "cancelled",
        "FareRuleViolation", "The fare of this booking is not refundable", "high", "compensable",
        "Book again"),
    ToolTemplate("charge_payment_card", "external_irreversible", "charge", "charged",
        "CardDeclined", "The issuer declined the second instalment", "critical", "compensable",
        "Refund the charge"),
    ToolTemplate("crm.update_contact", "internal_update", "contact", "changed",
        "ValidationError", "The field country is required", "medium", "exact",
        "Restore the contact"),
    ToolTemplate("email.send_notification", "external_irreversible", "mail", "sent",
        "BounceError", "The address does not exist", "medium", "irreversible",
        "Send a correction"),
    ToolTemplate("slack.post_message", "external_reversible", "message", "posted",
        "RateLimited", "Too many messages in channel sales", "low", "compensable",
        "Delete the message"),
    ToolTemplate("licences.assign", "external_reversible", "licence", "assigned",
        "QuotaExceeded", "No seat is left in this plan", "low", "exact", "Take the licence back"),
    ToolTemplate("invoice.create", "external_irreversible", "invoice", "wrote",
        "DuplicateNumber", "The invoice number is taken", "medium", "compensable",
        "Write a credit note"),
    ToolTemplate("calendar.move_meeting", "external_reversible", "meeting", "moved",
        "Conflict", "Somebody else changed the meeting meanwhile", "low", "exact",
        "Move the meeting back"),
    ToolTemplate("github.delete_repository", "external_irreversible", "repository", "deleted",
        "Forbidden", "The token may not delete in this organisation", "critical", "irreversible",
        "Tell the owners"),
)  # fmt: skip

FIRST_NAMES = (
    "Eve Noor Mateo Ling Amara Jonas Priya Olek Yuki Sana Hugo Ines Tariq Lena Pavel Rosa Kofi Mina"
    " Arne Zoe"
).split()
LAST_NAMES = (
    "Field Okafor Lindqvist Marchetti Tanaka Novak Alvarez Haddad Iyer Kowalski Brandt Dubois Costa"
    " Nielsen Weber Petrov Mensah Rahman Silva Keller"
).split()
CITIES = (
    "Lisbon Porto Madrid Seville Paris Lyon Nantes Bordeaux Berlin Hamburg Munich Cologne Leipzig"
    " Vienna Graz Zurich Geneva Basel Milan Rome Turin Naples Venice Athens Sofia Bucharest"
    " Budapest Prague Brno Warsaw Krakow Gdansk Vilnius Riga Tallinn Helsinki Turku Stockholm"
    " Malmo Oslo Bergen Copenhagen Aarhus Amsterdam Utrecht Rotterdam Brussels Antwerp Ghent"
    " London Leeds Bristol Glasgow Dublin Cork Reykjavik Boston Chicago Denver Seattle Austin"
    " Dallas Miami Atlanta Phoenix Toronto Montreal Vancouver Calgary Havana Bogota Lima Quito"
    " Santiago Cordoba Recife Salvador Lagos Accra Nairobi Kampala Kigali Cairo Tunis Rabat"
    " Casablanca Dakar Istanbul Ankara Izmir Amman Beirut Dubai Doha Delhi Mumbai Pune Chennai"
    " Tokyo Osaka Kyoto Sapporo Seoul Busan"
).split()
WISHES = (
    "Please move my trip to {city} to Friday and keep the window seat",
    "Please cancel the booking to {city} and give me my money back",
    "Please send the signed offer to our partner in {city} before noon",
    "Please set our new colleague from {city} up with mail and licences",
    "Please correct the address of our branch in {city} everywhere",
)
MODELS = ("opus-4", "sonnet-4", "gpt-5", "gemini-3")

DAYS = 85
CUSTOMERS = 5_000
# Of as many runs, one has an open case and the next a closed one.
EVERY_OPEN = 10
# Of as many runs, one's last call has no answer: a person has to say what became of it.
EVERY_UNKNOWN = 40


Rows = dict[str, list[Any]]
"""By the table's name here, what is to be copied into it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The desk in which all of it happens: agents with id and name, causes by tool."""

    workspace_id: int
    agents: list[tuple[int, str]]
    causes: dict[str, int]
    team_id: int
    total: int
    now: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class GeneratedRun:
    """One run's story."""

    number: int
    run: str
    agent_id: int
    agent: str
    call: ToolTemplate
    customer: str
    name: str
    request: str
    at: datetime
    failed: bool
    actions: int
    is_open: bool
    in_doubt: bool

    @property
    def model(self) -> str:
        return MODELS[self.number % len(MODELS)]


def told(number: int, setting: Setting, chance: random.Random) -> GeneratedRun:
    """The story of one run: of one action, or of three where it has a case."""
    pick = chance.random
    agent = setting.agents[number % len(setting.agents)]
    call = TOOLS[int(pick() * len(TOOLS))]
    customer = int(pick() * CUSTOMERS)
    wish = WISHES[int(pick() * len(WISHES))]
    has_case = number % EVERY_OPEN < 2
    return GeneratedRun(
        number=number + 1,
        run=f"run_{number + 1:07d}",
        agent_id=agent[0],
        agent=agent[1],
        call=call,
        customer=f"c-{customer}",
        name=(f"{FIRST_NAMES[customer % 20]} {LAST_NAMES[customer // 20 % 20]}"),
        request=wish.format(city=CITIES[int(pick() * len(CITIES))]),
        at=setting.now - timedelta(seconds=(1 - number / setting.total) * DAYS * 86400),
        failed=has_case,
        actions=3 if has_case else 1,
        is_open=number % EVERY_OPEN == 0,
        in_doubt=number % EVERY_UNKNOWN == 0,
    )


# What became of the runs that failed: cases, corrections and approvals of the generated desk.

WAITING_APPROVALS_MAX = 500
CORRECTIONS_EVERY = 4


@dataclass
class Cases:
    """Makes the rows behind a failed run; ids are counted here, for the tables are empty."""

    setting: Setting
    case_id: int = 0
    case_in_doubt: int = 0
    approval_id: int = 0

    def __post_init__(self) -> None:
        from approvals.models import Approval, Requirement
        from recovery.models import Case, Correction

        self.tables = {
            "case": Table(Case),
            "correction": Table(Correction, without=["id"]),
            "approval": Table(Approval),
            "requirement": Table(Requirement, without=["id"]),
        }

    def add(self, rows: Rows, story: GeneratedRun, *, failed_action: int) -> None:
        call = story.call
        self.case_id += 1
        if story.in_doubt:
            self.case_in_doubt = self.case_id
        target = f"{call.target} {call.target[:1].upper()}{story.number:06X}3"
        headline = (
            f"Agent “{story.agent}” {call.verb} 2 {call.target}s, then {call.tool} failed:"
            f" {call.message}"
        )
        rank = ["low", "medium", "high", "critical"].index(call.risk)
        closed: dict[str, Any] = {"was": "open", "state": "closed", "outcome": "restored",
                                  "closed_at": story.at + timedelta(hours=3),
                                  "closing_reason": "put back",
                                  "corrections_drafted_at": story.at}  # fmt: skip
        said = (headline, call.tool, target, story.customer, story.run, story.name, story.request)
        rows["case"].append(
            self.tables["case"].row(
                **({"state": "open"} if story.is_open else closed),
                id=self.case_id, workspace_id=self.setting.workspace_id, run_id=story.number,
                agent_id=story.agent_id, cause_id=self.setting.causes[call.tool],
                run_ref=story.run, model=story.model,
                reasons="{run_failed}",
                evidence=json.dumps([{"code": "run_failed", "key": "run_failed", "words": "…"}]),
                headline=headline, risk=call.risk, risk_rank=rank, failed_action_id=failed_action,
                failed_tool=call.tool, failed_target=target,
                tools=f"{{{call.tool.lower()}}}", customer=story.customer,
                customer_name=story.name, request=story.request, suggestion="compensate",
                suggestion_reason="Two effects stand.", suggestion_text=call.suggestion,
                reversibility=call.reversibility, unknown_count=int(story.in_doubt),
                needs_approval="operators" if rank > 1 else "", standing_count=2 * story.is_open,
                amount_minor=1286_00 if call.target == "charge" else None,
                currency="USD" if call.target == "charge" else "",
                failed_at=story.at + timedelta(seconds=40), opened_at=story.at,
                due_at=story.at + timedelta(days=DAYS + 1 - story.number % 3),
                considered_revision=1, search=" ".join(said),
            )
        )  # fmt: skip
        if not story.is_open and self.case_id % CORRECTIONS_EVERY == 0:
            rows["correction"].append(self._correction(story))
        self.approval(rows, story, failed_action)

    def _correction(self, story: GeneratedRun) -> Any:
        return self.tables["correction"].row(
            workspace_id=self.setting.workspace_id, case_id=self.case_id,
            reference=f"AM-{self.case_id}", person_id=story.customer, person_name=story.name,
            state="published", facts="{}", title="We put your booking right",
            published_at=story.at, drafted_at=story.at,
        )  # fmt: skip

    def approval(self, rows: Rows, story: GeneratedRun, failed_action: int) -> None:
        """Every eighth case had a question; the newest of the open ones are still unanswered."""
        if self.case_id % 8 > 1:
            return
        left = (self.setting.total - story.number) / EVERY_OPEN / 4
        waits = story.is_open and left < WAITING_APPROVALS_MAX
        self.approval_id += 1
        expires = (
            self.setting.now + timedelta(hours=20) if waits else story.at + timedelta(hours=24)
        )
        state = ("", "waiting") if waits else ("granted", "used")
        rows["approval"].append(
            self.tables["approval"].row(
                id=self.approval_id, workspace_id=self.setting.workspace_id, subject_kind="action",
                action_id=failed_action, subject_key=f"{story.agent_id} {story.run}",
                run_ref=story.run, subject=json.dumps({"kind": "action", "key": story.run}),
                digest="d" * 64, calls="[]", rules="[]", headline=story.call.suggestion,
                previews=json.dumps([{"kind": "http", "title": story.call.suggestion}]),
                risk=story.call.risk, agent_id=story.agent_id, was=state[0], state=state[1],
                asked_at=story.at, expires_at=expires,
                decided_at=None if waits else story.at, used_at=None if waits else story.at,
            )
        )  # fmt: skip
        rows["requirement"].append(
            self.tables["requirement"].row(
                approval_id=self.approval_id, team_id=self.setting.team_id
            )
        )


STUCK_SECONDS = 900


@dataclass
class Life:
    """Makes rows; ids and ledger places are counted here, for the tables are empty."""

    setting: Setting
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    action_id: int = 0
    place: int = 0
    event: str = ""

    def __post_init__(self) -> None:
        from ledger.models import Action, Attempt, Effect, Event, EventKey, Run

        self.cases = Cases(self.setting)
        self.tables = self.cases.tables | {
            "run": Table(Run),
            "action": Table(Action),
            "attempt": Table(Attempt, without=["id"]),
            "effect": Table(Effect, without=["id"]),
            "event": Table(Event),
            "key": Table(EventKey),
        }

    def runs(self, numbers: range) -> Rows:
        rows: Rows = defaultdict(list)
        for number in numbers:
            self.run(number, rows)
        return rows

    def run(self, number: int, rows: Rows) -> None:
        story = told(number, self.setting, self.chance)
        first = self.place + 1
        if story.failed:
            self.say(rows, story, "run.started", {"request": story.request})
        for n in range(1, story.actions + 1):
            self.action(rows, story, n)
        ending = "run.failed" if story.failed else "run.completed"
        self.say(rows, story, ending, {"summary": "done"})
        rows["run"].append(self._run(story, first))
        if story.failed:
            self.cases.add(rows, story, failed_action=self.action_id)

    def _run(self, story: GeneratedRun, first: int) -> Any:
        error = {"type": story.call.error, "message": story.call.message}
        return self.tables["run"].row(
            id=story.number, workspace_id=self.setting.workspace_id, run=story.run,
            agent_id=story.agent_id, model=story.model,
            request=story.request, customer=story.customer,
            customer_name=story.name, state="failed" if story.failed else "completed",
            on_behalf_of=json.dumps({"id": story.customer, "name": story.name}),
            error=json.dumps(error) if story.failed else None,
            started_at=story.at, ended_at=story.at + timedelta(seconds=40),
            last_event_at=story.at + timedelta(seconds=40), first_place=first,
            last_place=self.place, lease_until=story.at + timedelta(seconds=STUCK_SECONDS),
            revision=story.actions + 2, seen_revision=story.actions + 2, action_count=story.actions,
            search_revision=story.actions + 2, effect_count=story.actions,
            search=f"{story.request} {story.run} {story.customer} {story.name} {story.call.tool}",
        )  # fmt: skip

    def action(self, rows: Rows, story: GeneratedRun, n: int) -> None:
        call, at = story.call, story.at + timedelta(seconds=n)
        target = {"type": call.target, "id": f"{call.target[:1].upper()}{story.number:06X}{n}"}
        failed = story.failed and n == story.actions
        state = ("unknown" if story.in_doubt else "failed") if failed else "succeeded"
        plan = {"tool": call.tool, "targets": [target], "args": {"n": n, "why": story.request}}
        first = self.place + 1
        if story.failed:
            self.say(rows, story, "action.planned", plan, n)
            ended = "started" if state == "unknown" else state
            self.say(rows, story, f"action.{ended}", {"n": n}, n)
        self.action_id += 1
        rows["action"].append(
            self.tables["action"].row(
                id=self.action_id, workspace_id=self.setting.workspace_id, run_id=story.number,
                agent_id=story.agent_id, action=f"act_{n}", n=n, first_place=first,
                last_place=self.place, tool=call.tool, action_class=call.kind, risk=call.risk,
                key=f"{story.run}-{n}", targets=json.dumps([target]), args=json.dumps(plan["args"]),
                state=state, planned_at=at, started_at=at,
                finished_at=at + timedelta(seconds=1),
                error=json.dumps({"type": call.error, "message": call.message}) if failed else None,
            )
        )  # fmt: skip
        if story.failed:
            outcome = "no_effect" if state == "failed" else state
            rows["attempt"].append(
                self.tables["attempt"].row(action_id=self.action_id, attempt="a1", state=outcome,
                                           started_at=at, finished_at=at + timedelta(seconds=1))
            )  # fmt: skip
        if not failed:
            rows["effect"].append(
                self.tables["effect"].row(
                    workspace_id=self.setting.workspace_id, action_id=self.action_id, position=0,
                    target_type=target["type"], target_id=target["id"],
                    before=json.dumps({"status": "open", "city": "Porto"}), has_before=True,
                    after=json.dumps({"status": "moved", "city": "Lisbon"}), has_after=True,
                    reversibility=call.reversibility,
                )
            )  # fmt: skip

    def say(self, rows: Rows, story: GeneratedRun, kind: str, data: Any, n: int = 0) -> None:
        self.place += 1
        at, event_id = story.at + timedelta(seconds=n), f"e-{self.place}"
        rows["event"].append(
            self.tables["event"].row(
                place=self.place, received_at=at, workspace_id=self.setting.workspace_id,
                event_id=event_id, type=kind, time=at, run=story.run, n=n,
                action=f"act_{n}" if n else "", actor_kind="agent", actor=story.agent,
                key_prefix="0123456789", trusted=False, data=json.dumps(data),
                salt=b"s" * 32, digest=b"d" * 32,
            )
        )  # fmt: skip
        if story.failed:
            self.event = event_id
            rows["key"].append(
                self.tables["key"].row(workspace_id=self.setting.workspace_id, event_id=event_id,
                                       content=b"c" * 32, place=self.place, received_at=at)
            )  # fmt: skip
