"""Approval health: is asking people still worth something?

People who are asked eighty-five times where four mattered say yes without reading. These figures
show where: how long answers take, which come too fast to have been read, what expires, what was
taken back or undone afterwards, and which rules always get a fast yes.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import reduce
from operator import or_
from statistics import median, quantiles
from typing import Any, NamedTuple, TypeVar

from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from amends.protocol.vocabulary import EventType
from approvals.models import Approval, ApprovalState, Decision, SubjectKind
from ledger.models import Action
from ledger.models.runs import Compensated
from workspaces import replica
from workspaces.clock import DAY, by_days
from workspaces.models import Workspace

# Which approvals were overturned: taken back by a person, or undone after they had been used.
#
# Of forward actions the ledger tells; of plans the floor above does, which states here how to ask.

Condition = Callable[[], Q | Exists]
_of_plans: list[Condition] = []


def of_plans(condition: Condition) -> Condition:
    """Register what says of an approval of a plan (`OuterRef("plan_id")`) that it was undone."""
    _of_plans.append(condition)
    return condition


def taken_back() -> Q:
    """By a person; what the desk itself withdraws is asked anew and no change of mind."""
    return Q(was=ApprovalState.GRANTED, state=ApprovalState.WITHDRAWN, closed_by__isnull=False)


def undone_later() -> Q:
    """Used, and compensated, corrected or stopped afterwards; of a later try of its call, which was
    asked for anew, that says nothing (`call_context.is_of_current_try`).
    """
    undone = Action.objects.filter(pk=OuterRef("action")).exclude(compensated=Compensated.NONE)
    by_this_try = Q(used_by="") | Q(Exists(undone.filter(current_attempt=OuterRef("used_by"))))
    forward = Q(subject_kind=SubjectKind.ACTION) & Q(Exists(undone)) & by_this_try
    plans = [Q(subject_kind=SubjectKind.PLAN) & Q(condition()) for condition in _of_plans]
    return Q(state=ApprovalState.USED) & reduce(or_, plans, forward)


def overturned() -> Q:
    return taken_back() | undone_later()


# The pace of deciding: how many approvals were asked, how they ended and how soon, day by day.
#
# The few figures of `approvals.health` that are shown beside others, in one statement.

DAYS = 30
APPROVALS_MAX = 2_000  # the newest ones: enough to judge, and read in a few milliseconds

# The newest ones; granted is what people said yes to, whatever became of it.
DECIDING = f"""
WITH seen AS (
    SELECT was, state, asked_at, extract(epoch FROM decided_at - asked_at) AS seconds,
        agent_id, calls
    FROM approvals_approval WHERE workspace_id = %(workspace)s ORDER BY id DESC LIMIT %(limit)s
)
SELECT {DAY.format("asked_at")} AS day, count(*),
    count(*) FILTER (WHERE state IN ('granted', 'used') OR was = 'granted'),
    count(*) FILTER (WHERE state = 'rejected'),
    count(*) FILTER (WHERE state = 'expired' AND was <> 'granted'),
    count(*) FILTER (WHERE state = 'withdrawn' AND was <> 'granted'),
    count(*) FILTER (WHERE state = 'waiting'),
    percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds)
        FILTER (WHERE state IN ('granted', 'used', 'rejected'))
FROM seen WHERE asked_at >= %(since)s
    AND (%(agent)s::bigint IS NULL OR agent_id = %(agent)s)
    AND (%(called)s::jsonb IS NULL OR calls @> %(called)s::jsonb)
GROUP BY ROLLUP (day) ORDER BY day NULLS LAST"""  # noqa: S608 - our own words


@dataclass(frozen=True, slots=True)
class DecisionTimes:
    """How approvals ended that were asked on a day, or in the whole time where `day` is None."""

    day: date | None = None
    asked: int = 0
    granted: int = 0
    rejected: int = 0
    expired: int = 0
    withdrawn: int = 0
    waiting: int = 0
    median_seconds: float | None = None


def decision_times_of(
    workspace: Workspace, *, days: int = DAYS, agent: int | None = None, tool: str = ""
) -> tuple[DecisionTimes, list[DecisionTimes]]:
    """Of the whole time, and of each of its days on which something was asked; perhaps only what
    one agent asked, or what was asked about one tool.
    """
    given = _given(workspace, days)
    given |= {"agent": agent, "called": json.dumps([{"operation": tool}]) if tool else None}
    with replica.connection().cursor() as cursor:
        cursor.execute(DECIDING, given)
        *each, whole = [DecisionTimes(*row) for row in cursor.fetchall()] or [DecisionTimes()]
    return whole, each


def _given(workspace: Workspace, days: int) -> dict[str, Any]:
    """What the statements here are given: so many times 24 hours back, and the days in these."""
    since = timezone.now() - timedelta(days=days)
    given = {"workspace": workspace.pk, "since": since, "limit": APPROVALS_MAX}
    return given | by_days(timezone.localdate(since), timezone.localdate())


FAST_SECONDS = 5.0
"""Less time in front of a card than it takes to read one."""

ENOUGH_TO_JUDGE = 5
RULES_SHOWN_MAX = 20
PEOPLE_SHOWN_MAX = 100
QUANTILES = 20
P95 = 18


@dataclass(slots=True)
class PersonStats:
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
class RuleStats:
    """How people answer where one rule asks."""

    words: str
    glob: str
    asked: int = 0
    granted: int = 0
    fast: int = 0
    false_alarms: int = 0
    """Granted, made, and never overturned: asking has changed nothing."""
    seconds: list[float] = field(default_factory=list)

    @property
    def always_fast(self) -> bool:
        """Always yes, and nearly always faster than the card can be read."""
        enough = self.asked >= ENOUGH_TO_JUDGE and self.asked == self.granted
        return enough and self.fast * 10 >= self.asked * 9

    @property
    def slowest_seconds(self) -> float:
        return max(self.seconds, default=0.0)


class ReviewStats(NamedTuple):
    """What became of the calls that one rule under `review` brought back for a look."""

    words: str
    glob: str
    calls: int
    looked_at: int
    """Their case was closed since, in whichever way."""
    false_alarms: int
    """It was closed as expected: there was nothing to see."""


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
    people: list[PersonStats] = field(default_factory=list)
    rules: list[RuleStats] = field(default_factory=list)
    reviews: list[ReviewStats] = field(default_factory=list)
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
    def rubber_stamped(self) -> list[RuleStats]:
        return [rule for rule in self.rules if rule.always_fast]


def of(workspace: Workspace, *, days: int = DAYS) -> Health:
    """The figures of approvals asked in the last `days`."""
    given = _given(workspace, days)
    rows = _ask(ROWS, _Row, given)
    found = Health(days, capped=len(rows) == APPROVALS_MAX, asked=len(rows))
    overturned = _overturned(workspace, rows)
    for one in rows:
        found.ends[_end(one)] += 1
        found.never_used += one.was == ApprovalState.GRANTED and one.state == ApprovalState.EXPIRED
        found.taken_back += overturned.get(one.pk) == ApprovalState.WITHDRAWN
        found.undone_later += overturned.get(one.pk) == ApprovalState.USED
        if one.answered_seconds is not None:
            found.decide_seconds.append(one.answered_seconds)
            found.by_day.setdefault(one.day, []).append(one.answered_seconds)
    answers = _ask(ANSWERS, _Answer, given)
    found.fast = len({one.approval for one in answers if one.granted and one.is_fast})
    found.people = _people(answers)
    found.rules = _rules(rows, answers, overturned)
    found.reviews = _ask(REVIEWS, ReviewStats, given)
    return found


# Two thousand rows are read here: moments are reckoned with where they are, and rules, of which
# most say the same, stay text. Taken apart one by one, both took longer than the database.
ASKED = """
WITH seen AS (
    SELECT id, was, state, asked_at, decided_at, rules
    FROM approvals_approval WHERE workspace_id = %(workspace)s ORDER BY id DESC LIMIT %(limit)s
)"""
ROWS = f"""{ASKED}
SELECT id, was, state, to_char({DAY.format("asked_at")}, 'YYYY-MM-DD'),
    CASE WHEN state IN ('granted', 'used', 'rejected')
        THEN extract(epoch FROM decided_at - asked_at)::float8 END,
    rules::text
FROM seen WHERE asked_at >= %(since)s ORDER BY id DESC"""  # noqa: S608 - our own words
ANSWERS = f"""{ASKED}
SELECT answer.approval_id, answer.person_id, coalesce(nullif(person.name, ''), person.email),
    answer.granted,
    coalesce(answer.shown_seconds, extract(epoch FROM answer.at - seen.asked_at)::float8)
FROM seen
JOIN approvals_decision answer ON answer.approval_id = seen.id
JOIN workspaces_user person ON person.id = answer.person_id
WHERE seen.asked_at >= %(since)s ORDER BY answer.id DESC"""  # noqa: S608 - our own words


class _Row(NamedTuple):
    """An approval; `answered_seconds` is how long people took, None where nobody answered."""

    pk: int
    was: str
    state: str
    day: str
    answered_seconds: float | None
    rules: str


Read = TypeVar("Read", bound=NamedTuple)


def _ask(sql: str, kind: type[Read], given: dict[str, Any]) -> list[Read]:
    """The newest rows of the time; whatever is older is never looked at."""
    with replica.connection().cursor() as cursor:
        cursor.execute(sql, given)
        return [kind(*row) for row in cursor.fetchall()]


def _end(one: _Row) -> str:
    """Granted is what people said yes to, whatever became of it afterwards."""
    if one.state == ApprovalState.USED or one.was == ApprovalState.GRANTED:
        return "granted"
    return str(one.state)


def _overturned(workspace: Workspace, rows: Sequence[_Row]) -> dict[int, str]:
    """Those that were overturned, and how they ended: withdrawn if taken back, used if undone.

    Asked by the place of the oldest, and not with two thousand ids; it may know more than `rows`.
    """
    if not rows:
        return {}
    newest = Approval.objects.filter(workspace=workspace, pk__gte=rows[-1].pk)
    found = newest.filter(state__in=[ApprovalState.USED, ApprovalState.WITHDRAWN])
    return dict(found.filter(overturned()).values_list("pk", "state"))


# Cases stand on the floor above; how one was closed stands in the ledger.
REVIEWS = f"""
WITH seen AS (
    SELECT run_ref, glob, words, at FROM approvals_review
    WHERE workspace_id = %(workspace)s AND at >= %(since)s ORDER BY at DESC LIMIT %(limit)s
)
SELECT seen.words, seen.glob, count(*), count(closed.*),
    count(*) FILTER (WHERE closed.outcome = 'expected')
FROM seen LEFT JOIN LATERAL (
    SELECT e.data ->> 'outcome' AS outcome FROM ledger_event e
    WHERE e.workspace_id = %(workspace)s AND e.run = seen.run_ref
        AND e.action = '' AND e.type = '{EventType.CASE_CLOSED}' AND e.received_at >= seen.at
    ORDER BY e.place DESC LIMIT 1
) closed ON true
GROUP BY seen.words, seen.glob ORDER BY count(*) DESC, seen.words LIMIT {RULES_SHOWN_MAX}"""  # noqa: S608 - our own


class _Answer(NamedTuple):
    """One person's answer; `seconds` in front of the card by our own stamp, else since asked."""

    approval: int
    person: int
    name: str
    granted: bool
    seconds: float

    @property
    def is_fast(self) -> bool:
        """Given before the card can have been read."""
        return self.seconds < FAST_SECONDS


def fast() -> Exists:
    """Approvals that somebody granted too fast to have read them: the list behind the figure."""
    stamped = Q(shown_seconds__lt=FAST_SECONDS)
    at_once = Q(at__lt=OuterRef("asked_at") + timedelta(seconds=FAST_SECONDS))
    granted = Decision.objects.filter(approval=OuterRef("pk"), granted=True)
    return Exists(granted.filter(stamped | Q(shown_seconds=None) & at_once))


def expired() -> Q:
    return Q(was=ApprovalState.WAITING, state=ApprovalState.EXPIRED)


def unused() -> Q:
    return Q(was=ApprovalState.GRANTED, state=ApprovalState.EXPIRED)


def rejected() -> Q:
    return Q(state=ApprovalState.REJECTED)


def withdrawn() -> Q:
    """Taken back before people had answered."""
    return Q(was=ApprovalState.WAITING, state=ApprovalState.WITHDRAWN)


def granted() -> Q:
    """What people said yes to, whatever became of it."""
    return Q(was=ApprovalState.GRANTED) | Q(state=ApprovalState.GRANTED)


ENDS: dict[str, Callable[[], Q | Exists]] = {
    "granted": granted,
    "fast": fast,
    "expired": expired,
    "overturned": overturned,
    "unused": unused,
    "rejected": rejected,
    "withdrawn": withdrawn,
}
"""What stands behind the figures, as the list of decided approvals is asked for it: is:fast."""


def _people(answers: Iterable[_Answer]) -> list[PersonStats]:
    found: dict[int, PersonStats] = {}
    for one in answers:
        person = found.setdefault(one.person, PersonStats(one.name, one.person))
        person.yes += one.granted
        person.no += not one.granted
        person.fast += one.granted and one.is_fast
        person.seconds.append(one.seconds)
    return sorted(found.values(), key=lambda one: -(one.yes + one.no))[:PEOPLE_SHOWN_MAX]


def _rules(
    rows: Sequence[_Row], answers: Iterable[_Answer], overturned: Mapping[int, str]
) -> list[RuleStats]:
    """By the rule that asked; one approval counts under each of its rules."""
    given: dict[int, list[float]] = defaultdict(list)
    for one in answers:
        given[one.approval].append(one.seconds)
    known = {text: json.loads(text) for text in {row.rules for row in rows}}
    found: dict[str, RuleStats] = {}
    for row in rows:
        if row.state == ApprovalState.WAITING:
            continue
        for rule in known[row.rules]:
            words = str(rule.get("words") or rule.get("glob") or "")
            entry = found.setdefault(words, RuleStats(words, str(rule.get("glob") or "")))
            entry.asked += 1
            entry.granted += _end(row) == "granted"
            entry.false_alarms += row.state == ApprovalState.USED and row.pk not in overturned
            is_yes = _end(row) == "granted" and bool(given[row.pk])
            entry.fast += is_yes and max(given[row.pk]) < FAST_SECONDS
            entry.seconds += given[row.pk]
    return sorted(found.values(), key=lambda one: -one.asked)[:RULES_SHOWN_MAX]
