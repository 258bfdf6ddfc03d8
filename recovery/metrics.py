"""Metrics: what the insights page and the engine's own measures say, from the rows themselves.

Every question reads the newest rows of the window up to a limit, through an index, and says when it
was cut: a page about numbers must not be the one that brings a large desk down.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, NamedTuple, TypeVar

from django.db.models import CharField, Exists, OuterRef, Q, Value
from django.db.models.functions import Cast, Concat
from django.utils import timezone

from approvals import finding, health
from ledger.models import Action, Reversibility
from ledger.models.runs import Compensated
from ledger.wire import PLAN_RUN
from recovery.models import BulkItem, CaseState, Plan, PlanState, StepState
from recovery.models.cases import RECOVERED
from recovery.models.plans import LEFT, TROUBLED
from workspaces import replica
from workspaces.clock import DAY, by_days
from workspaces.models import Workspace
from workspaces.moves import literals

WINDOW_DAYS = 30
RANGES = (7, WINDOW_DAYS, 90)
"""Of days, of which the page offers one."""
GROUPS_MAX = 8
CASES_MAX = 20_000
PLANS_MAX = 5_000
RESIDUES_MAX = 20
OPEN_MAX = 100_000
# Up to how old; what is older than the last is the end of the line.
AGES = (
    ("< 1 h", timedelta(hours=1)),
    ("4 h", timedelta(hours=4)),
    ("1 d", timedelta(days=1)),
    ("3 d", timedelta(days=3)),
    ("7 d", timedelta(days=7)),
    ("30 d", timedelta(days=30)),
    ("older", timedelta.max),
)

CLOSED_CASE = f"'{CaseState.CLOSED}'"
IS_RECOVERED = f"outcome IN ({literals(RECOVERED)})"

# Whose figures, where somebody asked for one agent or tool: of a case's row, and of a plan's.
OF_CASES = "/* narrowed */"
OF_PLANS = "/* narrowed by case */"

# Index-only, one age after the other, the youngest first, until so many are counted: sorting a
# hundred thousand times into ages took twice as long.
OPEN = f"""
WITH RECURSIVE age AS (
    SELECT since, until, place FROM unnest('-infinity'::timestamptz || %(marks)s::timestamptz[],
        %(marks)s::timestamptz[] || 'infinity'::timestamptz)
        WITH ORDINALITY AS each (since, until, place)
), counted AS (
    SELECT (SELECT max(place) + 1 FROM age) AS place, 0::bigint AS count,
        NULL::timestamptz AS oldest, %(limit)s::bigint AS more
    UNION ALL
    SELECT age.place, found.count, found.oldest, counted.more - found.count
    FROM counted JOIN age ON age.place = counted.place - 1,
    LATERAL (SELECT count(*), min(failed_at) AS oldest FROM (
        SELECT failed_at FROM recovery_case
        WHERE workspace_id = %(workspace)s AND state <> {CLOSED_CASE} AND NOT without_effects
            AND failed_at >= age.since AND failed_at < age.until {OF_CASES}
        ORDER BY failed_at DESC LIMIT counted.more) seen) found
)
SELECT place - 1, count, oldest FROM counted JOIN age USING (place)"""  # noqa: S608 - our own words, here and below

# The newest cases are read once, for every table. What is sorted for a median is its own group's
# times alone: to sort all cases by each thing in turn took half as long again.
CASES = f"""
WITH seen AS (
    SELECT {DAY.format("failed_at")} AS day, agent_id, failed_tool, reversibility,
        state <> {CLOSED_CASE} AS is_open, {IS_RECOVERED} AS is_recovered,
        due_at IS NULL OR closed_at <= due_at AS is_in_time,
        date_part('epoch', closed_at - failed_at) AS took,
        date_part('epoch', due_at - failed_at) AS allowed
    FROM recovery_case
    WHERE workspace_id = %(workspace)s AND failed_at >= %(since)s AND NOT without_effects
        {OF_CASES}
    ORDER BY failed_at DESC, id DESC LIMIT %(limit)s
), summed AS (
    SELECT GROUPING(day) + GROUPING(agent_id) + GROUPING(failed_tool) = 3 AS is_whole,
        day, agent_id, failed_tool, count(*) AS failed,
        count(*) FILTER (WHERE is_open) AS standing,
        count(*) FILTER (WHERE is_recovered) AS recovered,
        count(*) FILTER (WHERE is_recovered AND is_in_time) AS in_time,
        count(*) FILTER (WHERE reversibility = '{Reversibility.EXACT}') AS exact,
        count(*) FILTER (WHERE reversibility = '{Reversibility.COMPENSABLE}') AS compensable,
        count(*) FILTER (WHERE reversibility = '{Reversibility.IRREVERSIBLE}') AS irreversible,
        array_agg(took) FILTER (WHERE is_recovered) AS took,
        array_agg(allowed) FILTER (WHERE is_recovered) AS allowed
    FROM seen GROUP BY GROUPING SETS ((), (day), (agent_id), (failed_tool))
)
SELECT is_whole, day, agent_id, failed_tool, failed, standing, recovered, took.median, took.p95,
    allowed.median, in_time, exact, compensable, irreversible
FROM summed, LATERAL (
    SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY one) AS median,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY one) AS p95
    FROM unnest(summed.took) one
) took, LATERAL (
    SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY one) AS median
    FROM unnest(summed.allowed) one
) allowed
ORDER BY failed DESC, agent_id, failed_tool"""  # noqa: S608

CLOSED = f"""
WITH seen AS (
    SELECT closed_at, outcome FROM recovery_case
    WHERE workspace_id = %(workspace)s AND closed_at >= %(since)s AND NOT without_effects
        {OF_CASES}
    ORDER BY closed_at DESC LIMIT %(limit)s
)
SELECT {DAY.format("closed_at")} AS day, count(*),
    count(*) FILTER (WHERE {IS_RECOVERED})
FROM seen GROUP BY ROLLUP (day) ORDER BY day NULLS LAST"""  # noqa: S608

STEPS = f"""
WITH seen AS (
    SELECT id, started_at FROM recovery_plan
    WHERE workspace_id = %(workspace)s AND started_at >= %(since)s {OF_PLANS}
    ORDER BY started_at DESC, id DESC LIMIT %(limit)s
)
SELECT {DAY.format("seen.started_at")} AS day, count(DISTINCT seen.id),
    count(*) FILTER (WHERE s.state = '{StepState.VERIFIED}'),
    count(*) FILTER (WHERE s.state = '{StepState.REPORTED}'),
    count(*) FILTER (WHERE s.state IN ({literals(TROUBLED)})),
    count(*) FILTER (WHERE s.state IN ({literals(LEFT)})), count(s.id)
FROM seen JOIN recovery_step s ON s.plan_id = seen.id
GROUP BY ROLLUP (day) ORDER BY day NULLS LAST"""  # noqa: S608 - our own words

UNWINDS = f"""
WITH seen AS (
    SELECT id, started_at FROM recovery_plan
    WHERE workspace_id = %(workspace)s AND started_at >= %(since)s {OF_PLANS}
    ORDER BY started_at DESC, id DESC LIMIT %(limit)s
), tries AS (
    SELECT {DAY.format("seen.started_at")} AS day, c.name,
        date_part('epoch', a.answered_at - a.intended_at) AS seconds
    FROM seen JOIN recovery_step s ON s.plan_id = seen.id
    JOIN recovery_stepattempt a ON a.step_id = s.id
    JOIN connectors_connection c ON c.id = s.connection_id
    WHERE a.answered_at IS NOT NULL AND a.outcome = 'applied'
)
SELECT day, name, percentile_cont(0.95) WITHIN GROUP (ORDER BY seconds), count(*)
FROM tries GROUP BY GROUPING SETS ((day), (name), ()) ORDER BY day, name"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Window:
    """Which cases the figures are of: so many days, and perhaps of one agent or one failed tool."""

    days: int = WINDOW_DAYS
    agent: int | None = None
    tool: str = ""

    def dates(self) -> list[date]:
        """Its days by the page's clock, oldest first."""
        today = timezone.localdate()
        return [today - timedelta(days=ago) for ago in reversed(range(self.days))]


ALL = Window()


@dataclass(frozen=True, slots=True)
class CaseFigures:
    """The cases of the window, or those of one `day` of failure, one `agent` (its id) or one failed
    `tool`; times in seconds.
    """

    is_whole: bool = False
    day: date | None = None
    agent: int | None = None
    tool: str | None = None
    failed: int = 0
    standing: int = 0
    recovered: int = 0
    median: float | None = None
    p95: float | None = None
    allowed: float | None = None
    """How long the recovered ones had until they were due, median; what the policy's goal is."""
    in_time: int = 0
    exact: int = 0
    compensable: int = 0
    irreversible: int = 0

    @property
    def untold(self) -> int:
        """Cases of which nothing says whether they can be undone."""
        return self.failed - self.exact - self.compensable - self.irreversible


class CaseTables(NamedTuple):
    """The whole window; each of its days, oldest first, days without a case too; and by agent and
    by failed tool, the most first, at most GROUPS_MAX.
    """

    whole: CaseFigures
    days: list[CaseFigures]
    agents: list[CaseFigures]
    tools: list[CaseFigures]


@dataclass(frozen=True, slots=True)
class ClosedDay:
    """Cases that were closed on a day, and those of them whose effects were put right."""

    day: date | None
    closed: int = 0
    recovered: int = 0


@dataclass(frozen=True, slots=True)
class StepDay:
    """Plans that started on a day, and how their steps stand now."""

    day: date | None
    plans: int = 0
    verified: int = 0
    reported: int = 0
    need_person: int = 0
    left_out: int = 0
    steps: int = 0

    @property
    def settled(self) -> int:
        """Steps that should have been done and came to an end, or to a stop."""
        return self.verified + self.reported + self.need_person

    @property
    def success(self) -> float | None:
        """Which part of them was read back as it should be; None where there were none."""
        return self.verified / self.settled if self.settled else None


Row = TypeVar("Row", ClosedDay, StepDay)


@dataclass(frozen=True, slots=True)
class OpenCaseAges:
    """Open cases by their age: how many of each of AGES, and the oldest of them in seconds."""

    by_age: list[int]
    oldest: float | None

    @property
    def count(self) -> int:
        return sum(self.by_age)


@dataclass(frozen=True, slots=True)
class Unwinds:
    """How long one call of a compensation takes, in seconds: 95 of 100 take no longer."""

    p95: float | None
    calls: int
    by_day: dict[date, float]
    by_connection: dict[str, float]


def cases(workspace: Workspace, of: Window = ALL) -> CaseTables:
    """The cases that failed in the window, told by day, by agent and by tool."""
    found = [CaseFigures(*row) for row in _ask(CASES, workspace, CASES_MAX, of)]
    days = {one.day: one for one in found}
    return CaseTables(
        next(one for one in found if one.is_whole),
        [days.get(day) or CaseFigures(day=day) for day in of.dates()],
        [one for one in found if one.agent is not None][:GROUPS_MAX],
        [one for one in found if one.tool][:GROUPS_MAX],
    )


def closed(workspace: Workspace, of: Window = ALL) -> tuple[ClosedDay, list[ClosedDay]]:
    """The whole window, and each of its days of closing, oldest first; days without one too."""
    return _by_day(ClosedDay, _ask(CLOSED, workspace, CASES_MAX, of), of)


def waiting(workspace: Workspace, of: Window = ALL) -> OpenCaseAges:
    """The open cases; beyond OPEN_MAX the oldest are not among them."""
    now = timezone.now()
    marks = [now - age for _, age in reversed(AGES[:-1])]
    rows = _rows(OPEN, of, {"workspace": workspace.pk, "limit": OPEN_MAX, "marks": marks})
    found = {at: count for at, count, _ in rows}
    oldest = min((at for _, _, at in rows if at is not None), default=None)
    return OpenCaseAges(
        [found.get(at, 0) for at in reversed(range(len(AGES)))],
        None if oldest is None else (now - oldest).total_seconds(),
    )


def steps(workspace: Workspace, of: Window = ALL) -> tuple[StepDay, list[StepDay]]:
    """As `closed`, of the plans that started."""
    return _by_day(StepDay, _ask(STEPS, workspace, PLANS_MAX, of), of)


def unwinds(workspace: Workspace, of: Window = ALL) -> Unwinds:
    """The latency of compensating calls that took effect, in the window."""
    rows = _ask(UNWINDS, workspace, PLANS_MAX, of)
    whole = next((row for row in rows if row[0] is None and row[1] is None), None)
    return Unwinds(
        p95=whole[2] if whole else None,
        calls=whole[3] if whole else 0,
        by_day={day: p95 for day, _, p95, _ in rows if day is not None},
        by_connection={name: p95 for _, name, p95, _ in rows if name is not None},
    )


def _ask(sql: str, workspace: Workspace, limit: int, of: Window) -> list[Any]:
    dates = of.dates()
    days = by_days(dates[0], dates[-1])
    since = days["beginnings"][0]
    return _rows(sql, of, {"workspace": workspace.pk, "since": since, "limit": limit} | days)


def _rows(sql: str, of: Window, given: dict[str, Any]) -> list[Any]:
    """The rows of a statement, which is narrowed only where one agent or tool is asked for."""
    wanted = ["agent_id = %(agent)s"] if of.agent is not None else []
    wanted += ["failed_tool = %(tool)s"] if of.tool else []
    if wanted:
        named = " AND ".join(wanted)
        same = "SELECT 1 FROM recovery_case WHERE id = recovery_plan.case_id"
        sql = sql.replace(OF_CASES, f"AND {named}")
        sql = sql.replace(OF_PLANS, f"AND EXISTS ({same} AND {named})")
    with replica.connection().cursor() as cursor:
        cursor.execute(sql, given | {"agent": of.agent, "tool": of.tool})
        rows: list[Any] = cursor.fetchall()
        return rows


def _by_day(kind: type[Row], rows: list[Any], of: Window) -> tuple[Row, list[Row]]:
    """The row without a day, which stands for all of them, and one for each day."""
    found = {row.day: row for row in (kind(*one) for one in rows)}
    return found.get(None) or kind(None), [found.get(day) or kind(day) for day in of.dates()]


# What approvals of plans came to, for the page on whether asking is worth something.


@finding.of_job(
    # By its case, for items are not found by their plan.
    "SELECT seen.id, item.job_id::text FROM seen JOIN recovery_plan plan ON plan.id = seen.plan_id"
    " JOIN recovery_bulkitem item ON item.case_id = plan.case_id AND item.plan_id = plan.id"
)
def asked_by_job(job: str) -> Exists:
    """The approvals of the plans that a bulk job submitted."""
    return Exists(BulkItem.objects.filter(job=int(job), plan_id=OuterRef("plan_id")))


@health.of_plans
def stopped_or_undone() -> Q:
    """A plan is a run of the desk's own, so a wrong undo is compensated like anything else."""
    run = Concat(Value(PLAN_RUN), Cast(OuterRef("plan_id"), CharField()), output_field=CharField())
    own = Action.objects.filter(workspace_id=OuterRef("workspace_id"), run__run=run)
    stopped = Plan.objects.filter(pk=OuterRef("plan_id"), state=PlanState.STOPPED)
    return Q(Exists(stopped)) | Q(Exists(own.exclude(compensated=Compensated.NONE)))
