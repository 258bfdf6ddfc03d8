"""The engine's metrics for Prometheus, read from the tables when somebody asks.

Workers come and go, the tables stay: so nothing is counted in their memory. What is told is the
last hour, from the newest plans and up to a limit, so that asking costs the same on a large desk.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.db import Error, connection, transaction
from prometheus_client.core import (
    GaugeHistogramMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from amends.protocol.vocabulary import RISKS
from connectors.models.channels import DeliveryState
from recovery.models import CaseState, PlanState
from recovery.models.steps import DONE, TROUBLED

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
SELECT state, count(*) FROM (
    SELECT state FROM connectors_delivery WHERE state <> '{DeliveryState.SENT}'
    ORDER BY id DESC LIMIT %s)
AS unsent GROUP BY state"""  # noqa: S608


class EngineMetrics(Collector):
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
    unsent = dict(ask(MESSAGES, CASES_MAX))
    yield gauge(
        "amends_messages_unsent",
        "Messages to channels and people that wait for their next try, or were given up.",
        ("state",),
        [(state, unsent.get(state, 0)) for state in ("waiting", "failed")],
    )


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


def ask(sql: str, limit: int | str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, [limit])
        found: list[Any] = cursor.fetchall()
        return found
