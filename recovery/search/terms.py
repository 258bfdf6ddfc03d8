"""Terms: each key of the query language as a condition on cases.

Values are data, never SQL. Every key is read by one function in the table at the end; what it
cannot read it refuses with the position of the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation

from django.contrib.postgres.search import SearchQuery
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models import Value as Constant
from django.db.models.functions import Concat

from approvals import pauses
from approvals.models import Pause, PauseKind
from ledger.models import Reversibility, Run
from recovery.models import CaseOutcome, CaseState, Comment, Plan, Step, StepState
from recovery.search.language import Either, Field, Node, Not, QueryError, Text, Value
from workspaces.models import User, Workspace

RISKS = ("low", "medium", "high", "critical")
AMOUNT_MAX = Decimal(10) ** 15
STARS_MAX = 6
RUNS_OF_A_NAME_MAX = 100
"""Each agent names its runs itself; of several agents they may be named alike."""

WITHOUT_EFFECTS = "without-effects"
"""The view of runs that failed and did nothing; no other list holds them."""

TO_RUN = (StepState.BLOCKED, StepState.READY, StepState.CLAIMED)
"""Steps of which nothing is sent yet: a pause holds them."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Who asks, when and where: `is:mine` and `age:` mean nothing without."""

    person: User | None
    now: datetime
    workspace: Workspace


def condition(node: Node, reader: Reader) -> Q:
    """The condition that a tree stands for; raises QueryError."""
    if isinstance(node, Text):
        return words(node, reader)
    if isinstance(node, Not):
        return ~condition(node.part, reader)
    if isinstance(node, Field):
        return _any(KEYS[node.key](value, reader) for value in node.values)
    parts = [condition(part, reader) for part in node.parts]
    if isinstance(node, Either):
        return _any(parts)
    together = Q()
    for part in parts:
        together &= part
    return together


def words(text: Text, reader: Reader) -> Q:
    """Full text; a bare word also finds longer ones that start with it, and a run by its id.

    The run is looked up first: an OR that reaches into another table would cost the words' index.
    """
    if text.phrase:
        return Q(search=SearchQuery(text.text, config="simple", search_type="phrase"))
    if not re.search(r"\w", text.text):
        raise QueryError("There is no word in this to search for.", text.position, text.length)
    # Quoted: PostgreSQL takes it apart as it took the text apart (T-182 is “t” and “-182”).
    raw = "'{}':*".format(text.text.replace("\\", "").replace("'", "''"))
    found = Q(search=SearchQuery(raw, config="simple", search_type="raw"))
    named = Run.objects.filter(workspace=reader.workspace, run=text.text).values_list("pk").first()
    return found | Q(run_id=named[0]) if named else found


def _any(parts: Iterable[Q]) -> Q:
    either = Q()
    for part in parts:
        either |= part
    return either


def _pattern(value: Value) -> str:
    """Each `*` multiplies the work of a match: three hundred of them took seconds over ten rows."""
    parts = re.split(r"\*+", value.text)
    if len(parts) > STARS_MAX + 1:
        raise QueryError(
            f"At most {STARS_MAX} times “*” in one value.", value.position, len(value.text)
        )
    return "^" + ".*".join(re.escape(part) for part in parts) + "$"


def _like(column: str) -> Callable[[Value, Reader], Q]:
    """Equal without case; `*` stands for anything."""

    def read(value: Value, reader: Reader) -> Q:
        if "*" not in value.text:
            return Q(**{f"{column}__iexact": value.text})
        return Q(**{f"{column}__iregex": _pattern(value)})

    return read


def _short(*columns: str) -> Callable[[Value, Reader], Q]:
    """As `_like`, of columns whose trigrams are indexed: those find patterns and whole values."""

    def read(value: Value, reader: Reader) -> Q:
        pattern = _pattern(value)
        return _any(Q(**{f"{column}__iregex": pattern}) for column in columns)

    return read


def _either_like(*columns: str) -> Callable[[Value, Reader], Q]:
    readers = [_like(column) for column in columns]
    return lambda value, reader: _any(read(value, reader) for read in readers)


def _one_of(
    column: str, known: Mapping[str, str] | tuple[str, ...]
) -> Callable[[Value, Reader], Q]:
    def read(value: Value, reader: Reader) -> Q:
        wanted = value.text.lower().replace("-", "_")
        if wanted not in known:
            raise unknown(value, known)
        return Q(**{column: wanted})

    return read


def unknown(value: Value, known: Iterable[str]) -> QueryError:
    listed = ", ".join(sorted(known))
    return QueryError(
        f"“{value.text}” is none of: {listed}.", value.position, max(len(value.text), 1)
    )


_AGE = re.compile(r"([<>]?)(\d{1,5})(m|h|d|w)")
_UNIT = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _age(column: str) -> Callable[[Value, Reader], Q]:
    def read(value: Value, reader: Reader) -> Q:
        found = _AGE.fullmatch(value.text.lower())
        if not found:
            raise QueryError(
                "An age is written like <24h, >30m, <7d or <2w.", value.position, len(value.text)
            )
        moment = reader.now - timedelta(**{_UNIT[found[3]]: int(found[2])})
        return Q(**{f"{column}__{'lt' if found[1] == '>' else 'gt'}": moment})

    return read


def opened(value: Value, reader: Reader) -> Q:
    """An age, or a day: `opened:2026-11-21`, `opened:>2026-11-01`."""
    text = value.text
    if _AGE.fullmatch(text.lower()):
        return _age("opened_at")(value, reader)
    sign = text[0] if text[:1] in {"<", ">"} else ""
    try:
        day = datetime.fromisoformat(text.removeprefix(sign)[:10]).replace(tzinfo=reader.now.tzinfo)
        after = day + timedelta(days=1)
    except (ValueError, OverflowError):
        raise QueryError("A day is written like 2026-11-21.", value.position, len(text)) from None
    if sign:
        return Q(**{f"opened_at__{'lt' if sign == '<' else 'gte'}": day})
    return Q(opened_at__gte=day, opened_at__lt=after)


def amount(value: Value, reader: Reader) -> Q:
    """In whole units of whatever currency the case has: `amount:>1000`."""
    sign = value.text[0] if value.text[:1] in {"<", ">"} else ""
    try:
        minor = Decimal(value.text.removeprefix(sign)) * 100
    except InvalidOperation:
        minor = Decimal(-1)
    if not (minor.is_finite() and 0 <= minor <= AMOUNT_MAX):
        raise QueryError(
            "An amount is written like >1000 or <9.50.", value.position, len(value.text)
        )
    lookup = {"<": "amount_minor__lt", ">": "amount_minor__gt", "": "amount_minor"}[sign]
    return Q(**{lookup: int(minor)})


def risk(value: Value, reader: Reader) -> Q:
    sign = value.text[0] if value.text[:1] in {"<", ">"} else ""
    name = value.text.removeprefix(sign).lower()
    if name not in RISKS:
        raise unknown(value, RISKS)
    lookup = {"<": "risk_rank__lt", ">": "risk_rank__gt", "": "risk_rank"}[sign]
    return Q(**{lookup: RISKS.index(name)})


def claimed(value: Value, reader: Reader) -> Q:
    if value.text.lower() == "me":
        return mine(reader)
    living = Q(claimed_until__gt=reader.now)
    return living & _either_like("claimed_by__name", "claimed_by__email")(value, reader)


def cause(value: Value, reader: Reader) -> Q:
    return Q(cause__fingerprint__startswith=value.text.lower())


def connector(value: Value, reader: Reader) -> Q:
    """The connection, or its kind, of any step of any plan of the case."""
    steps = Step.objects.filter(plan__case=OuterRef("pk"))
    named = _either_like("connection__name", "connection__connector")(value, reader)
    return Q(Exists(steps.filter(named)))


def mine(reader: Reader) -> Q:
    return Q(claimed_by=reader.person, claimed_until__gt=reader.now)


def paused(reader: Reader) -> Q:
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


IS: Mapping[str, Callable[[Reader], Q]] = {
    "open": lambda _: ~Q(state=CaseState.CLOSED),
    "closed": lambda _: Q(state=CaseState.CLOSED),
    "mine": mine,
    "unclaimed": lambda reader: Q(claimed_by=None) | Q(claimed_until__lte=reader.now),
    "unknown": lambda _: Q(unknown_count__gt=0),
    "irreversible": lambda _: Q(reversibility=Reversibility.IRREVERSIBLE),
    "overdue": lambda reader: Q(due_at__lt=reader.now) & ~Q(state=CaseState.CLOSED),
    "paused": paused,
    WITHOUT_EFFECTS: lambda _: Q(without_effects=True),
}

HAS: Mapping[str, Callable[[], Q]] = {
    "approval": lambda: Q(Exists(Plan.objects.filter(case=OuterRef("pk"), state="waiting"))),
    "comment": lambda: Q(Exists(Comment.objects.filter(case=OuterRef("pk")))),
    "drift": lambda: Q(Exists(Step.objects.filter(plan__case=OuterRef("pk"), state="drifted"))),
}


def is_(value: Value, reader: Reader) -> Q:
    try:
        return IS[value.text.lower()](reader)
    except KeyError:
        raise unknown(value, IS) from None


def has(value: Value, reader: Reader) -> Q:
    try:
        return HAS[value.text.lower()]()
    except KeyError:
        raise unknown(value, HAS) from None


def reason(value: Value, reader: Reader) -> Q:
    return Q(reasons__contains=[value.text.lower()])


def tool(value: Value, reader: Reader) -> Q:
    """Any tool of the run, by its name; with `*` the one that the case is about."""
    if "*" in value.text:
        return _short("failed_tool")(value, reader)
    return Q(tools__contains=[value.text.lower()])


def run(value: Value, reader: Reader) -> Q:
    """An id as it is written, which is looked up first; or a pattern over the ids of all cases."""
    if "*" in value.text:
        return _like("run__run")(value, reader)
    named = Run.objects.filter(workspace=reader.workspace, run=value.text)
    found = list(named.values_list("pk", flat=True)[: RUNS_OF_A_NAME_MAX + 1])
    if len(found) > RUNS_OF_A_NAME_MAX:
        raise QueryError(
            f"More than {RUNS_OF_A_NAME_MAX} runs have this name.", value.position, len(value.text)
        )
    return Q(run_id__in=found)


KEYS: Mapping[str, Callable[[Value, Reader], Q]] = {
    "is": is_,
    "has": has,
    "tool": tool,
    "target": _short("failed_target"),
    "agent": _like("agent__name"),
    "model": _like("run__model"),
    "customer": _short("customer", "customer_name"),
    "run": run,
    "state": _one_of("state", tuple(CaseState.values)),
    "cause": cause,
    "claimed": claimed,
    "connector": connector,
    "opened": opened,
    "age": _age("failed_at"),
    "amount": amount,
    "risk": risk,
    "reason": reason,
    "outcome": _one_of("outcome", tuple(CaseOutcome.values)),
}
