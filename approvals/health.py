"""Approval health: is asking people still worth something?

People who are asked eighty-five times where four mattered say yes without reading. These figures
show where: how long answers take, which come too fast to have been read, what expires, what was
taken back or undone afterwards, and which rules always get a fast yes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import median, quantiles
from typing import Any

from django.db.models import F, Q
from django.db.models.functions import Now

from approvals.models import Approval, ApprovalState, Decision, SubjectKind
from ledger.models.actions import Compensated
from workspaces.models import Workspace

DAYS = 30
APPROVALS_MAX = 10_000  # the newest ones; a desk with more has a policy to mend, not to measure
FAST_SECONDS = 5.0
"""Less time in front of a card than it takes to read one."""

ENOUGH_TO_JUDGE = 5
RULES_SHOWN_MAX = 20
PEOPLE_SHOWN_MAX = 100
QUANTILES = 20
P95 = 18


@dataclass(slots=True)
class OfPerson:
    """How one person answers."""

    name: str
    pk: int
    yes: int = 0
    no: int = 0
    fast: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def rate(self) -> int:
        """Percent of their answers that are yes."""
        return round(100 * self.yes / (self.yes + self.no))

    @property
    def median_seconds(self) -> float | None:
        return median(self.seconds) if self.seconds else None


@dataclass(slots=True)
class OfRule:
    """How people answer where one rule asks."""

    words: str
    glob: str
    asked: int = 0
    granted: int = 0
    fast: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def always_fast(self) -> bool:
        """Always yes, and nearly always faster than the card can be read."""
        enough = self.asked >= ENOUGH_TO_JUDGE and self.asked == self.granted
        return enough and self.fast * 10 >= self.asked * 9

    @property
    def slowest_seconds(self) -> float:
        return max(self.seconds, default=0.0)


@dataclass(slots=True)
class Health:
    """The figures of the last `days`."""

    days: int
    capped: bool = False
    asked: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    decide_seconds: list[float] = field(default_factory=list)
    fast: int = 0
    never_used: int = 0
    taken_back: int = 0
    undone_later: int = 0
    people: list[OfPerson] = field(default_factory=list)
    rules: list[OfRule] = field(default_factory=list)
    by_day: dict[str, list[float]] = field(default_factory=dict)

    @property
    def granted(self) -> int:
        return self.ends["granted"]

    @property
    def overturned(self) -> int:
        return self.taken_back + self.undone_later

    @property
    def median_seconds(self) -> float | None:
        return median(self.decide_seconds) if self.decide_seconds else None

    @property
    def p95_seconds(self) -> float | None:
        if len(self.decide_seconds) < 2:  # noqa: PLR2004 - a quantile needs two
            return self.median_seconds
        return quantiles(self.decide_seconds, n=QUANTILES)[P95]

    @property
    def rubber_stamped(self) -> list[OfRule]:
        return [rule for rule in self.rules if rule.always_fast]


def of(workspace: Workspace, *, days: int = DAYS) -> Health:
    """The figures of approvals asked in the last `days`."""
    rows = _rows(workspace, days)
    found = Health(days, capped=len(rows) == APPROVALS_MAX, asked=len(rows))
    undone = _undone_later(rows)
    for one in rows:
        found.ends[_end(one)] += 1
        found.never_used += one.was == ApprovalState.GRANTED and one.state == ApprovalState.EXPIRED
        found.taken_back += (
            one.was == ApprovalState.GRANTED and one.state == ApprovalState.WITHDRAWN
        )
        found.undone_later += one.pk in undone
        if one.answered_seconds is not None:
            found.decide_seconds.append(one.answered_seconds)
            found.by_day.setdefault(f"{one.asked_at:%Y-%m-%d}", []).append(one.answered_seconds)
    decisions = _decisions(workspace, days)
    found.fast = len({one.approval_id for one in decisions if one.granted and is_fast(one)})
    found.people = _people(decisions)
    found.rules = _rules(rows, decisions)
    return found


@dataclass(frozen=True, slots=True)
class _Row:
    pk: int
    was: str
    state: str
    asked_at: Any
    answered_seconds: float | None
    rules: Sequence[dict[str, Any]]
    subject_kind: str


def _rows(workspace: Workspace, days: int) -> list[_Row]:
    recent = Approval.objects.filter(
        workspace=workspace, asked_at__gte=Now() - timedelta(days=days)
    )
    values = recent.order_by("-pk").values_list(
        "pk", "was", "state", "asked_at", "decided_at", "rules", "subject_kind"
    )
    return [
        _Row(pk, was, state, asked_at, _seconds(state, asked_at, decided_at), rules, kind)
        for pk, was, state, asked_at, decided_at, rules, kind in values[:APPROVALS_MAX]
    ]


def _seconds(state: str, asked_at: Any, decided_at: Any) -> float | None:
    """How long people took; of what nobody answered, nothing."""
    answered = {ApprovalState.GRANTED, ApprovalState.USED, ApprovalState.REJECTED}
    return (decided_at - asked_at).total_seconds() if state in answered and decided_at else None


def _end(one: _Row) -> str:
    """Granted is what people said yes to, whatever became of it afterwards."""
    if one.state == ApprovalState.USED or one.was == ApprovalState.GRANTED:
        return "granted"
    return str(one.state)


def _undone_later(rows: Iterable[_Row]) -> set[int]:
    """Forward actions that people approved and that were compensated or corrected afterwards."""
    used = [
        one.pk
        for one in rows
        if one.state == ApprovalState.USED and one.subject_kind == SubjectKind.ACTION
    ]
    undone = Approval.objects.filter(pk__in=used).exclude(action__compensated=Compensated.NONE)
    return set(undone.values_list("pk", flat=True))


def _decisions(workspace: Workspace, days: int) -> list[Decision]:
    recent = Decision.objects.filter(
        approval__workspace=workspace, approval__asked_at__gte=Now() - timedelta(days=days)
    )
    return list(recent.select_related("person", "approval").order_by("-pk")[:APPROVALS_MAX])


def is_fast(one: Decision) -> bool:
    """Answered before the card can have been read: by our own stamp, else by when it was asked."""
    return taken_seconds(one) < FAST_SECONDS


def taken_seconds(one: Decision) -> float:
    if one.shown_seconds is not None:
        return one.shown_seconds
    return (one.at - one.approval.asked_at).total_seconds()


def fast() -> Q:
    """Approvals that somebody granted too fast to have read them: the list behind the figure."""
    stamped = Q(decisions__shown_seconds__lt=FAST_SECONDS)
    at_once = Q(decisions__at__lt=F("asked_at") + timedelta(seconds=FAST_SECONDS))
    unstamped = Q(decisions__shown_seconds=None) & at_once
    return Q(decisions__granted=True) & (stamped | unstamped)


def _people(decisions: Iterable[Decision]) -> list[OfPerson]:
    found: dict[int, OfPerson] = {}
    for one in decisions:
        person = found.setdefault(one.person_id, OfPerson(str(one.person), one.person_id))
        person.yes += one.granted
        person.no += not one.granted
        person.fast += one.granted and is_fast(one)
        person.seconds.append(taken_seconds(one))
    return sorted(found.values(), key=lambda one: -(one.yes + one.no))[:PEOPLE_SHOWN_MAX]


def _rules(rows: Sequence[_Row], decisions: Iterable[Decision]) -> list[OfRule]:
    """By the rule that asked; one approval counts under each of its rules."""
    given: dict[int, list[Decision]] = defaultdict(list)
    for one in decisions:
        given[one.approval_id].append(one)
    found: dict[str, OfRule] = {}
    for row in rows:
        if row.state == ApprovalState.WAITING:
            continue
        for rule in row.rules:
            words = str(rule.get("words") or rule.get("glob") or "")
            entry = found.setdefault(words, OfRule(words, str(rule.get("glob") or "")))
            entry.asked += 1
            entry.granted += _end(row) == "granted"
            times = [taken_seconds(one) for one in given[row.pk]]
            entry.fast += bool(times) and max(times) < FAST_SECONDS
            entry.seconds += times
    return sorted(found.values(), key=lambda one: -one.asked)[:RULES_SHOWN_MAX]
