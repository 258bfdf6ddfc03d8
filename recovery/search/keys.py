"""Keys: what can be asked of cases, each key one row of `KEYS`, at the end.

Parser, conditions, suggestions, what the browser colours and docs/query.md are made from that
table. Values are data, never SQL. A key's function turns a value into a condition; what it cannot
read it refuses with the position of the value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import cached_property

from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models import Value as Constant
from django.db.models.functions import Concat
from django.db.models.lookups import IRegex, Regex

from amends.protocol.vocabulary import RISKS
from approvals import pauses
from approvals.models import Pause, PauseKind
from connectors.models import Connection
from ledger import disclosure, finding
from ledger.models import Reversibility, Run
from recovery.models import (
    Case,
    CaseOutcome,
    CaseState,
    Cause,
    Comment,
    Plan,
    PlanState,
    Step,
    StepState,
)
from recovery.models.cases import OF_RUN
from recovery.models.plans import TO_RUN, TROUBLED
from recovery.search import language, offers
from recovery.search.language import FieldTerm, Node, Not, Or, Query, QueryError, TextTerm, Value
from workspaces.formatting import CURRENCIES_BY_DIGITS, DIGITS, EXPONENTS
from workspaces.models import Agent, User, Workspace

AMOUNT_MAX = Decimal(10) ** 15  # in whole units
CAUSES_MAX = 100  # of one value; a query has room for some hundreds of them
RUNS_OF_A_NAME_MAX = 100
"""Each agent names its runs itself; of several agents they may be named alike."""

TWO = re.compile(r"\w{2}")
WITHOUT_EFFECTS = "without-effects"
"""The view of runs that failed and did nothing; no other list holds them."""
SNOOZED = "snoozed"


@dataclass(frozen=True)
class QueryContext:
    """Who asks, when and where: `is:mine` and `age:` mean nothing without. A day is one of the
    zone of `now`. What is looked up for a value is so once for all values of a query.
    """

    person: User | None
    now: datetime
    workspace: Workspace

    @cached_property
    def sees(self) -> bool:
        """Whether values in full may find for the reader (ledger/disclosure.py)."""
        return self.person is not None and disclosure.sees(self.person, self.workspace)

    @cached_property
    def carries_runs(self) -> bool:
        """Whether all cases carry what they do of their runs (OF_RUN). In an order, and so by an
        index: just after an upgrade PostgreSQL still takes it that none does, and looks at each.
        """
        return Case.objects.filter(run_ref="").order_by("pk").values("pk").first() is None


def parse(text: str) -> Query:
    """Read a query; raises QueryError. Nothing or blanks is the query for everything."""
    return language.read(text, KEYS)


Condition = Callable[[Value, QueryContext], Q]


def condition(node: Node, reader: QueryContext) -> Q:
    """The condition that a tree stands for; raises QueryError."""
    if isinstance(node, TextTerm):
        return words(node, reader)
    if isinstance(node, Not):
        return ~condition(node.part, reader)
    if isinstance(node, FieldTerm):
        return _any(KEYS[node.key].condition(value, reader) for value in node.values)
    parts = [condition(part, reader) for part in node.parts]
    if isinstance(node, Or):
        return _any(parts)
    together = Q()
    for part in parts:
        together &= part
    return together


def words(text: TextTerm, reader: QueryContext) -> Q:
    """Full text; a bare word also finds longer ones that start with it, and a run by its id.

    The run is looked up first: an OR that reaches into another table would cost the words' index.
    """
    if text.phrase:
        return Q(search=finding.query(text.text, "phrase", sees=reader.sees))
    if not re.search(r"\w", text.text):
        raise QueryError("There is no word in this to search for.", text.position, text.length)
    found = Q(search=finding.query(text.text, "beginning", sees=reader.sees))
    named = Run.objects.filter(workspace=reader.workspace, run=text.text).values_list("pk").first()
    return found | Q(run_id=named[0]) if named else found


def _any(parts: Iterable[Q]) -> Q:
    either = Q()
    for part in parts:
        either |= part
    return either


def _like(column: str) -> Condition:
    """Equal without case; `*` stands for anything."""

    def read(value: Value, reader: QueryContext) -> Q:
        if "*" not in value.text:
            return Q(**{f"{column}__iexact": value.text})
        return Q(**{f"{column}__iregex": value.pattern()})

    return read


def _told(value: Value, reader: QueryContext, read: F | Concat) -> Q:
    """What of a column may find for the reader: nothing that they are not shown, and by a part
    nothing that has the form of it.
    """
    if reader.sees:
        return Q()
    if disclosure.holds_secret(value.text):
        return Q(pk__in=[])
    return ~Q(Regex(read, disclosure.SUSPECTED)) if "*" in value.text else Q()


def _short(*columns: str) -> Condition:
    """As `_like`, of columns whose trigrams are indexed: those find patterns and whole values. By
    single letters (`c-9*`) they find far more than PostgreSQL foresees, and are not asked.
    """

    def read(value: Value, reader: QueryContext) -> Q:
        pattern, is_wide = value.pattern(), "*" in value.text and not TWO.search(value.text)
        asked = [Concat(F(one), Constant("")) if is_wide else F(one) for one in columns]
        return _any(Q(IRegex(one, pattern)) & _told(value, reader, one) for one in asked)

    return read


def _of_run(column: str) -> Condition:
    """As `_like`, of what a case carries of its run; of the run itself as long as one does not."""

    def read(value: Value, reader: QueryContext) -> Q:
        where = column if reader.carries_runs else OF_RUN[column]
        found = _like(where)(value, reader)
        return found & _told(value, reader, F(where)) if column == "run_ref" else found

    return read


def _either_like(*columns: str) -> Condition:
    readers = [_like(column) for column in columns]
    return lambda value, reader: _any(read(value, reader) for read in readers)


def _one_of(column: str, known: Iterable[str]) -> Condition:
    def read(value: Value, reader: QueryContext) -> Q:
        wanted = value.text.lower().replace("-", "_")
        if wanted not in known:
            raise value.not_among(known)
        return Q(**{column: wanted})

    return read


def _age(column: str) -> Condition:
    def read(value: Value, reader: QueryContext) -> Q:
        lookup, moment = value.ago(reader.now)
        return Q(**{f"{column}__{lookup}": moment})

    return read


def _of_closed(read: Condition) -> Condition:
    """What only a closed case has: so that an index of those is enough."""
    return lambda value, reader: read(value, reader) & Q(state=CaseState.CLOSED)


def _moment(column: str) -> Condition:
    """An age, or a day: `opened:<24h`, `opened:2026-11-21`, `failed:>2026-11-01`."""

    def read(value: Value, reader: QueryContext) -> Q:
        bounds = value.bounds(reader.now).items()
        return Q(**{f"{column}__{lookup}": moment for lookup, moment in bounds})

    return read


def started(value: Value, reader: QueryContext) -> Q:
    """When a plan of the case started."""
    bounds = {f"started_at__{one}": moment for one, moment in value.bounds(reader.now).items()}
    return Q(Exists(Plan.objects.filter(case=OuterRef("pk"), **bounds)))


def amount(value: Value, reader: QueryContext) -> Q:
    """What undoing the case would move, in whole units of its currency: `amount:>1000`. What is at
    stake, which its headline names, may be another sum.
    """
    sign, number = value.signed()
    try:
        wanted = Decimal(number)
    except InvalidOperation:
        wanted = Decimal(-1)
    if not (wanted.is_finite() and 0 <= wanted <= AMOUNT_MAX):
        raise value.wrong("An amount is written like >1000 or <9.50.")
    found = ~Q(currency__in=EXPONENTS) & _compared(sign, wanted.scaleb(DIGITS))
    for digits, codes in CURRENCIES_BY_DIGITS.items():
        found |= Q(currency__in=codes) & _compared(sign, wanted.scaleb(digits))
    return found


def _compared(sign: str, minor: Decimal) -> Q:
    """An amount in the smallest unit, of which there is no part."""
    if not sign:
        return Q(pk__in=[]) if minor % 1 else Q(amount_minor=int(minor))
    return Q(amount_minor__lt=math.ceil(minor)) if sign == "<" else Q(amount_minor__gt=int(minor))


def risk(value: Value, reader: QueryContext) -> Q:
    sign, text = value.signed()
    name = text.lower()
    if name not in RISKS:
        raise value.not_among(RISKS)
    lookup = {"<": "risk_rank__lt", ">": "risk_rank__gt", "": "risk_rank"}[sign]
    return Q(**{lookup: RISKS.index(name)})


def claimed(value: Value, reader: QueryContext) -> Q:
    if value.text.lower() == "me":
        return mine(reader)
    living = Q(claimed_until__gt=reader.now)
    return living & _either_like("claimed_by__name", "claimed_by__email")(value, reader)


def cause(value: Value, reader: QueryContext) -> Q:
    """Looked up first, as agents are, where there are few."""
    begins = Q(fingerprint__startswith=value.text.lower())
    found = Cause.objects.filter(begins, workspace=reader.workspace).values_list("pk", flat=True)
    few = list(found[: CAUSES_MAX + 1])
    if len(few) > CAUSES_MAX:
        return Q(cause__fingerprint__startswith=value.text.lower())
    return Q(cause_id__in=few)


def connector(value: Value, reader: QueryContext) -> Q:
    """The connection, or its kind, of any step of any plan of the case. It is looked up first."""
    named = _either_like("name", "connector")(value, reader)
    found = Connection.objects.in_workspace(reader.workspace).filter(named)
    steps = Step.objects.filter(plan__case=OuterRef("pk"))
    return Q(Exists(steps.filter(connection__in=list(found.values_list("pk", flat=True)))))


def mine(reader: QueryContext) -> Q:
    return Q(claimed_by=reader.person, claimed_until__gt=reader.now)


def paused(reader: QueryContext) -> Q:
    """What a standing pause holds up: as the gate would judge the call that failed, or as the
    engine judges a step that is still to run.
    """
    standing = pauses.standing_in(reader.workspace)
    return _any(_paused_by(one) for one in standing) if standing else Q(pk__in=[])


def _paused_by(one: Pause) -> Q:
    match one.kind:
        case PauseKind.AGENT:
            return Q(agent__name=one.name)
        case PauseKind.RUN:
            return Q(run__run=one.name)
        case PauseKind.TOOL:
            operation = Concat(F("connection__name"), Constant("."), F("operation"))
            steps = _steps_to_run().alias(tool=operation)
            held = Exists(steps.filter(tool__regex=pauses.paused_tools(one)))
        case PauseKind.CONNECTION:
            held = Exists(_steps_to_run().filter(connection__name=one.name))
        case _:
            return Q(workspace=one.workspace_id)
    return Q(failed_tool__regex=pauses.paused_tools(one)) | Q(held)


def _steps_to_run() -> QuerySet[Step]:
    return Step.objects.filter(plan__case=OuterRef("pk"), state__in=TO_RUN)


@dataclass(frozen=True, slots=True)
class Flag:
    """A value of `is:` or `has:`, and what it means in few words."""

    condition: Callable[[QueryContext], Q]
    hint: str


IS: Mapping[str, Flag] = {
    "open": Flag(lambda _: ~Q(state=CaseState.CLOSED), "not closed yet"),
    "closed": Flag(lambda _: Q(state=CaseState.CLOSED), "with an outcome"),
    "mine": Flag(mine, "you hold its claim"),
    "unclaimed": Flag(
        lambda reader: Q(claimed_by=None) | Q(claimed_until__lte=reader.now),
        "nobody holds its claim",
    ),
    "unknown": Flag(lambda _: Q(unknown_count__gt=0), "an outcome is not known"),
    "irreversible": Flag(
        lambda _: Q(reversibility=Reversibility.IRREVERSIBLE), "something cannot be undone"
    ),
    "overdue": Flag(
        lambda reader: Q(due_at__lt=reader.now) & ~Q(state=CaseState.CLOSED), "past its time"
    ),
    "late": Flag(
        lambda _: Q(state=CaseState.CLOSED, closed_at__gt=F("due_at")),
        "was closed after it was due",
    ),
    "paused": Flag(paused, "its agent, tool or target is stopped"),
    WITHOUT_EFFECTS: Flag(lambda _: Q(without_effects=True), "failed, and nothing took effect"),
    SNOOZED: Flag(lambda reader: Q(snoozed_until__gt=reader.now), "put off until later"),
}


def _step_in(*states: StepState) -> Callable[[QueryContext], Q]:
    steps = Step.objects.filter(plan__case=OuterRef("pk"), state__in=states)
    return lambda _: Q(Exists(steps))


HAS: Mapping[str, Flag] = {
    "approval": Flag(
        lambda _: Q(Exists(Plan.objects.filter(case=OuterRef("pk"), state=PlanState.WAITING))),
        "a plan waits for people",
    ),
    "comment": Flag(
        lambda _: Q(Exists(Comment.objects.filter(case=OuterRef("pk")))),
        "somebody wrote something",
    ),
    "verified": Flag(_step_in(StepState.VERIFIED), "a step was read back as it should be"),
    "reported": Flag(_step_in(StepState.REPORTED), "a step is done, and cannot be read back"),
    "trouble": Flag(_step_in(*TROUBLED), "a step needs a person"),
    "drift": Flag(_step_in(StepState.DRIFTED), "a target was changed since"),
}


def _word(known: Mapping[str, Flag]) -> Condition:
    def read(value: Value, reader: QueryContext) -> Q:
        if value.text.lower() not in known:
            raise value.not_among(known)
        return known[value.text.lower()].condition(reader)

    return read


def reason(value: Value, reader: QueryContext) -> Q:
    return Q(reasons__contains=[value.text.lower()])


def tool(value: Value, reader: QueryContext) -> Q:
    """Any tool of the run, by its name; with `*` the one that the case is about."""
    if "*" in value.text:
        return _short("failed_tool")(value, reader)
    return Q(tools__contains=[value.text.lower()])


def agent(value: Value, reader: QueryContext) -> Q:
    """Its name is looked up first: there are few, and of one that is none no case is read."""
    named = Agent.objects.filter(_like("name")(value, reader), workspace=reader.workspace)
    return Q(agent_id__in=list(named.values_list("pk", flat=True)))


def run(value: Value, reader: QueryContext) -> Q:
    """An id as it is written, which is looked up first; or a pattern over the ids of all cases."""
    if "*" in value.text:
        return _of_run("run_ref")(value, reader)
    named = Run.objects.filter(workspace=reader.workspace, run=value.text)
    found = list(named.values_list("pk", flat=True)[: RUNS_OF_A_NAME_MAX + 1])
    if len(found) > RUNS_OF_A_NAME_MAX:
        raise value.wrong(f"More than {RUNS_OF_A_NAME_MAX} runs have this name.")
    return Q(run_id__in=found)


@dataclass(frozen=True, slots=True)
class Key:
    """A key: its condition, what it asks in few words, and a value as it is written.

    `offers` are values for who types: fixed ones, those with their meaning, or what is there now.
    """

    condition: Condition
    hint: str
    example: str
    offers: Mapping[str, Flag] | tuple[str, ...] | offers.Offers = ()
    says_state: bool = False  # else only open cases are meant
    bounds_time: bool = False  # else what may mean closed cases looks at the last 90 days

    def offered(self, workspace: Workspace) -> Iterable[str]:
        return self.offers(workspace) if callable(self.offers) else self.offers

    def meaning(self, value: str) -> str:
        word = self.offers.get(value) if isinstance(self.offers, Mapping) else None
        return word.hint if word else ""


KEYS: Mapping[str, Key] = {
    "is": Key(_word(IS), "open, mine, unknown, overdue …", "open", IS),
    "has": Key(_word(HAS), "approval, comment, trouble, drift …", "comment", HAS),
    "tool": Key(tool, "the tool that failed", "payments.*", offers.of_cases("failed_tool")),
    "failed_tool": Key(
        _short("failed_tool"),
        "the tool that it failed at, exactly",
        "payments.charge",
        offers.of_cases("failed_tool"),
    ),
    "target": Key(
        _short("failed_target"), "what it was called on", "*T-182", offers.of_cases("failed_target")
    ),
    "agent": Key(agent, "who acted", "airline-*", offers.agents),
    "model": Key(_of_run("model"), "which model it used", "large-*", offers.of_cases("model")),
    "customer": Key(
        _short("customer", "customer_name"),
        "whom it concerns",
        '"Nora Lindt"',
        offers.of_cases("customer"),
    ),
    "run": Key(run, "a run's id, * for anything", "run_9*", bounds_time=True),
    "state": Key(
        _one_of("state", CaseState.values),
        "open, waiting, recovering …",
        "waiting",
        tuple(CaseState.values),
        says_state=True,
    ),
    "cause": Key(
        cause, "like failures, by fingerprint", "3fa9c1", offers.of_cases("cause__fingerprint")
    ),
    "claimed": Key(claimed, "me, or a name", "me", ("me",)),
    "connector": Key(connector, "a connection of its plans", "payments"),
    "opened": Key(
        _moment("opened_at"),
        "when it came: <24h, a day",
        ">2026-11-01",
        ("<24h", "<7d"),
        bounds_time=True,
    ),
    "age": Key(
        _age("failed_at"),
        "since it failed: <24h, >7d",
        "<24h",
        ("<1h", "<24h", "<7d", ">24h"),
        bounds_time=True,
    ),
    "failed": Key(
        _moment("failed_at"), "when it failed: <24h, a day", ">2026-11-01", bounds_time=True
    ),
    "started": Key(
        started, "when a plan of it started", ">2026-11-01", ("<24h", "<7d"), bounds_time=True
    ),
    "closed": Key(
        _of_closed(_moment("closed_at")),
        "when it was closed",
        ">2026-11-01",
        ("<24h", "<7d"),
        says_state=True,
        bounds_time=True,
    ),
    "amount": Key(amount, "what undoing would move: >1000", ">1000"),
    "risk": Key(risk, "low to critical, >medium", ">medium", RISKS),
    "reversibility": Key(
        _one_of("reversibility", Reversibility.values),
        "exact, compensable, irreversible",
        "exact",
        tuple(Reversibility.values),
    ),
    "reason": Key(reason, "what opened it", "failed_with_effects", offers.of_cases("reasons")),
    "outcome": Key(
        _of_closed(_one_of("outcome", CaseOutcome.values)),
        "how it was closed",
        "restored",
        tuple(CaseOutcome.values),
        says_state=True,
    ),
}
"""In the order in which they are offered."""
