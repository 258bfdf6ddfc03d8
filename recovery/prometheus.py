"""The desk's metrics for Prometheus, read from the tables when somebody asks.

Workers come and go, the tables stay: so nothing is counted in their memory. What ran is told of the
last hour, from the newest plans, and what waits is counted up to a limit, so that asking costs the
same on a large desk. deploy/prometheus/alerts.yaml says which of them should wake somebody.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Any, NamedTuple

from django.db import Error, connection, transaction
from prometheus_client.core import (
    GaugeHistogramMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from amends.protocol.vocabulary import RISKS
from approvals.models import ApprovalState, PauseKind
from connectors.channels import PAUSES_SECONDS
from connectors.models import DeliveryState
from recovery.models import CaseState, PlanState, StepState
from recovery.models.plans import DONE, TROUBLED
from workspaces import periodic
from workspaces.periodic import BACKUP, RETENTION, SCHEDULER, SWEEPER, patience

logger = logging.getLogger(__name__)

PLANS_MAX = 5_000
CASES_MAX = 10_000
CONNECTIONS_MAX = 1_000
ASK_MILLISECONDS_MAX = 2_000
BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)

RECENT = """
WITH newest AS (SELECT id, state, started_at, ended_at FROM recovery_plan
                ORDER BY id DESC LIMIT %s),
recent AS (SELECT * FROM newest WHERE started_at > clock_timestamp() - interval '1 hour')
"""
STEPS = f"""{RECENT}
SELECT c.connector, s.state, count(*) FROM recent JOIN recovery_step s ON s.plan_id = recent.id
JOIN connectors_connection c ON c.id = s.connection_id GROUP BY 1, 2"""  # noqa: S608 - our own words
PLANS = f"{RECENT} SELECT state, count(*) FROM recent GROUP BY 1"  # noqa: S608
UNWINDS = f"""{RECENT}
SELECT extract(epoch FROM ended_at - started_at)::float8 FROM recent
WHERE state = '{PlanState.FINISHED}' AND ended_at IS NOT NULL"""  # noqa: S608
BREAKERS = """
SELECT w.slug, c.name, c.connector, c.failures_in_a_row,
       CASE WHEN c.open_until IS NULL THEN 0 WHEN c.open_until > clock_timestamp() THEN 2
            ELSE 1 END
FROM connectors_connection c JOIN workspaces_workspace w ON w.id = c.workspace_id
WHERE c.disabled_at IS NULL ORDER BY c.open_until NULLS LAST, c.id LIMIT %s"""
OVERDUE = f"""
SELECT risk, count(*) FROM (
    SELECT risk FROM recovery_case WHERE state <> '{CaseState.CLOSED}' AND NOT without_effects
        AND due_at < clock_timestamp() LIMIT %s)
AS late GROUP BY risk"""  # noqa: S608
MESSAGES = f"""
SELECT '{DeliveryState.WAITING}', count(*) FROM (
    SELECT FROM connectors_delivery WHERE state = '{DeliveryState.WAITING}' LIMIT %s)
AS waiting
UNION ALL
SELECT '{DeliveryState.FAILED}', count(*) FROM (
    SELECT FROM connectors_delivery
    WHERE state = '{DeliveryState.FAILED}' AND tries > {len(PAUSES_SECONDS)}
        AND next_try_at > statement_timestamp() - interval '1 day' LIMIT %s)
AS given_up"""  # noqa: S608
"""Given up after the last try; what was taken back, erased or not sent after a restore is not."""


class BacklogGauge(NamedTuple):
    """What waits: the names of a gauge of how much and of one of since when, and the query that
    takes limits and gives (label, count, seconds), without the first where there is no label.
    """

    counted: str
    oldest: str
    words: str
    sql: str
    label: str = ""


READY = f"""
SELECT count(*), max(extract(epoch FROM clock_timestamp() - since)) FROM (
    SELECT greatest(s.moved_at, coalesce(s.wake_at, s.moved_at)) AS since
    FROM recovery_plan p JOIN recovery_step s ON s.plan_id = p.id
    WHERE p.state = '{PlanState.RUNNING}' AND s.state = '{StepState.READY}'
        AND coalesce(s.wake_at, s.moved_at) <= clock_timestamp() LIMIT %s)
AS due"""  # noqa: S608
UNKNOWN = f"""
SELECT 'step', count(*), max(extract(epoch FROM clock_timestamp() - moved_at)) FROM (
    SELECT moved_at FROM recovery_step WHERE state = '{StepState.UNKNOWN}' LIMIT %s)
AS steps
UNION ALL
SELECT 'action', coalesce(sum(unknown_count), 0),
    max(extract(epoch FROM clock_timestamp() - failed_at)) FROM (
    SELECT unknown_count, failed_at FROM recovery_case
    WHERE state <> '{CaseState.CLOSED}' AND unknown_count > 0 LIMIT %s)
AS cases"""  # noqa: S608
QUESTIONS = f"""
SELECT count(*), max(extract(epoch FROM clock_timestamp() - asked_at)) FROM (
    SELECT asked_at FROM approvals_approval
    WHERE state = '{ApprovalState.WAITING}' AND expires_at > clock_timestamp() LIMIT %s)
AS questions"""  # noqa: S608
UNSEALED = """
SELECT count(*), max(extract(epoch FROM clock_timestamp() - received_at)) FROM (
    SELECT received_at FROM ledger_unsealed LIMIT %s)
AS unsealed"""
WENT_BACK = f"""
SELECT count(*), max(extract(epoch FROM clock_timestamp() - paused_at)) FROM (
    SELECT paused_at FROM approvals_pause
    WHERE lifted_at IS NULL AND paused_by_id IS NULL AND kind = '{PauseKind.WORKSPACE}' LIMIT %s)
AS held"""  # noqa: S608
WAITING = (
    BacklogGauge(
        "amends_steps_ready",
        "amends_step_ready_oldest_seconds",
        "steps that a worker could begin",
        READY,
    ),
    BacklogGauge(
        "amends_outcomes_unknown",
        "amends_outcome_unknown_oldest_seconds",
        "calls of agents (action) and of the desk (step) of which nobody knows what became",
        UNKNOWN,
        label="of",
    ),
    BacklogGauge(
        "amends_approvals_waiting",
        "amends_approval_waiting_oldest_seconds",
        "questions that wait for people",
        QUESTIONS,
    ),
    BacklogGauge(
        "amends_events_unsealed",
        "amends_event_unsealed_oldest_seconds",
        "events that no signed head covers yet",
        UNSEALED,
    ),
    BacklogGauge(
        "amends_logs_went_back",
        "amends_log_went_back_oldest_seconds",
        "workspaces that are held because their log went back, until an administrator looks",
        WENT_BACK,
    ),
)
# Of a session of another role PostgreSQL tells neither its state nor its kind.
SESSIONS = """
SELECT CASE WHEN datname = current_database() THEN coalesce(state, 'other') ELSE 'other' END,
    count(*) FROM pg_stat_activity
WHERE datname IS NOT NULL AND usesysid IS NOT NULL
    AND coalesce(backend_type, 'client backend') = 'client backend' GROUP BY 1 LIMIT %s"""
ROOM = """
SELECT current_setting('max_connections')::int
    - current_setting('superuser_reserved_connections')::int
    - coalesce(current_setting('reserved_connections', true), '0')::int"""
HEARTBEATS = """
SELECT name, extract(epoch FROM clock_timestamp() - beat_at), every_seconds, last_error <> ''
FROM workspaces_heartbeat LIMIT %s"""
PROCESSES = ("worker", SCHEDULER, SWEEPER)
# Since when there is anything that could grow old.
BEGUN = "SELECT extract(epoch FROM clock_timestamp() - min(created_at)) FROM workspaces_workspace"
AGES = {
    BACKUP: ("amends_backup_age_seconds", "Since the last backup was made and carried away."),
    RETENTION: (
        "amends_retention_lag_seconds",
        "Since all that was over its time was let go (where never: since the first workspace).",
    ),
}


class DeskMetrics(Collector):
    """Registered once in a web process; asked in a thread of its own."""

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering it asks no database."""
        return ()

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("amends_figures_up", "1 if the database gave these figures.")
        was_closed = connection.connection is None
        try:
            with transaction.atomic():
                found = list(metrics())
        except Error:
            logger.warning("The database gave no metrics", exc_info=True)
            found = []
        finally:
            if was_closed:
                connection.close()
        up.add_metric([], float(bool(found)))
        yield up
        yield from found


def metrics() -> Iterator[Metric]:
    """All metrics; each is one short query."""
    ask("SELECT set_config('statement_timeout', %s, true)", str(ASK_MILLISECONDS_MAX))
    steps = ask(STEPS, PLANS_MAX)
    yield gauge(
        "amends_steps_last_hour",
        "Compensations of plans that started in the last hour, by where they stand.",
        ("connector", "state"),
        steps,
    )
    yield from success(steps)
    yield gauge(
        "amends_plans_last_hour",
        "Plans that started in the last hour, by where they stand.",
        ("state",),
        ask(PLANS, PLANS_MAX),
    )
    yield unwind([seconds for (seconds,) in ask(UNWINDS, PLANS_MAX)])
    yield from breakers(ask(BREAKERS, CONNECTIONS_MAX))
    late = dict(ask(OVERDUE, CASES_MAX))
    yield gauge(
        "amends_cases_overdue",
        f"Open cases past their due time, counted up to {CASES_MAX}.",
        ("risk",),
        [(risk, late.get(risk, 0)) for risk in RISKS],
    )
    yield gauge(
        "amends_messages_unsent",
        "Messages to channels and people that wait for their next try, or were given up in the"
        f" last day, counted up to {CASES_MAX}.",
        ("state",),
        ask(MESSAGES, CASES_MAX, CASES_MAX),
    )
    for one in WAITING:
        yield from waiting(one, ask(one.sql, *[CASES_MAX] * one.sql.count("%s")))
    noted = ask(HEARTBEATS, CONNECTIONS_MAX)
    yield from heartbeat(noted)
    ages = {name: age for name, age, *_ in noted}
    if RETENTION not in ages:
        [[ages[RETENTION]]] = ask(BEGUN)
    for name, (called, words) in AGES.items():
        yield gauge(called, words, (), [(age,) for age in [ages.get(name)] if age is not None])
    yield processes(noted)
    yield gauge(
        "amends_database_sessions",
        "Sessions of PostgreSQL, by what they do; of another role or database: other.",
        ("state",),
        ask(SESSIONS, CONNECTIONS_MAX),
    )
    words = "What max_connections lets in beside what is kept for superusers."
    yield gauge("amends_database_sessions_max", words, (), ask(ROOM))


def waiting(what: BacklogGauge, rows: Sequence[tuple[Any, ...]]) -> Iterator[Metric]:
    labels = (what.label,) if what.label else ()
    words = f"How many {what.words}, up to {CASES_MAX}."
    yield gauge(what.counted, words, labels, [row[:-1] for row in rows])
    oldest = [(*row[:-2], row[-1] or 0.0) for row in rows]
    yield gauge(what.oldest, f"Since when the oldest waits: {what.words}.", labels, oldest)


def heartbeat(noted: Sequence[tuple[str, float, float, bool]]) -> Iterator[Metric]:
    """By loop and kind of process: its age, without an end where it never ran; the limit of
    patience, and whether its last round failed. Not of a loop that this version has no more.
    """
    known = dict.fromkeys(PROCESSES, (inf, 0.0, False))
    jobs = {job.name for job in periodic.jobs()}
    known |= {row[0]: row[1:] for row in noted if row[0] in known or row[0] in jobs}
    rows = [(name, *row) for name, row in known.items()]
    yield gauge(
        "amends_heartbeat_age_seconds",
        "Since the last sign of life of a loop or a kind of process.",
        ("name",),
        [(name, age) for name, age, _, _ in rows],
    )
    yield gauge(
        "amends_heartbeat_patience_seconds",
        "The age from which on it counts as stopped.",
        ("name",),
        [(name, patience(every)) for name, _, every, _ in rows],
    )
    yield gauge(
        "amends_heartbeat_failing",
        "1 if its last round failed.",
        ("name",),
        [(name, failed) for name, _, _, failed in rows],
    )


def processes(rows: Sequence[tuple[str, float, float, bool]]) -> Metric:
    """How many of each kind gave a sign of life of their own lately."""
    alive = dict.fromkeys(PROCESSES, 0)
    for name, age, every, _ in rows:
        kind, _, place = name.partition("@")
        if place and kind in alive and age <= patience(every):
            alive[kind] += 1
    return gauge("amends_processes", "Processes that live, by kind.", ("kind",), alive.items())


def success(steps: Sequence[tuple[str, str, int]]) -> Iterator[Metric]:
    """Of what came to an end or to people, the share that ended well; absent where nothing did."""
    well = sum(number for _, state, number in steps if state in DONE)
    badly = sum(number for _, state, number in steps if state in TROUBLED)
    if well + badly:
        words = "Share of the last hour's compensations that ended well."
        yield gauge("amends_compensation_success_ratio", words, (), [(well / (well + badly),)])


def unwind(seconds: Sequence[float]) -> Metric:
    """From a plan's start to its end, over the finished plans of the last hour."""
    counts = [(str(float(top)), sum(one <= top for one in seconds)) for top in BUCKETS]
    return GaugeHistogramMetricFamily(
        "amends_unwind_seconds",
        "From the start of a plan to its end, over plans that started in the last hour.",
        buckets=[*counts, ("+Inf", len(seconds))],
        gsum_value=sum(seconds),
    )


def breakers(rows: Sequence[tuple[str, str, str, int, int]]) -> Iterator[Metric]:
    names = ("workspace", "connection", "connector")
    yield gauge(
        "amends_connection_breaker",
        "0 closed, 1 half open (the next call is a trial), 2 open (nothing is called).",
        names,
        [(*who, state) for *who, _, state in rows],
    )
    yield gauge(
        "amends_connection_failures_in_a_row",
        "Failed calls over the connection since the last good one.",
        names,
        [(*who, failures) for *who, failures, _ in rows],
    )


def gauge(
    name: str, words: str, labels: Sequence[str], rows: Iterable[Sequence[Any]]
) -> GaugeMetricFamily:
    """Each row is its labels and, last, its number."""
    made = GaugeMetricFamily(name, words, labels=labels)
    for *given, number in rows:
        made.add_metric([str(one) for one in given], float(number))
    return made


def ask(sql: str, *limits: int | str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, limits)
        found: list[Any] = cursor.fetchall()
        return found
