"""What the engine does is told to Prometheus, from the rows themselves."""

import math
import os
from contextlib import ExitStack
from datetime import timedelta

import psycopg
import pytest
from django.db import Error, connection
from django.db.models.functions import Now
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from approvals.models import Pause
from config.local.postgres import RUNTIME
from connectors import calllog
from connectors.models import Connection, Delivery
from recovery import prometheus as metrics
from recovery.models import Case, Plan
from tests.recovery.engine import by_hand
from tests.recovery.engine.by_hand import after
from tests.recovery.engine.desk import advance, make_due, plan_for, states
from workspaces import periodic
from workspaces.models import Heartbeat, Workspace

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def told():
    """The samples as a Prometheus would read them: `told("amends_…", connector="outside")`."""

    def sample(name, /, **labels):
        class Registry:
            def collect(self):
                yield from metrics.DeskMetrics().collect()

        text = generate_latest(Registry()).decode()
        found = [
            one.value
            for family in text_string_to_metric_families(text)
            for one in family.samples
            if one.name == name and labels.items() <= one.labels.items()
        ]
        return found[0] if len(found) == 1 else found

    return sample


def test_how_often_compensation_runs_and_how_well_it_ends(case, world, outside, told):
    outside.seed({"b": {"v": 99}})
    plan = plan_for(case, world)
    advance(plan)
    assert states(plan) == ["verified", "drifted", "verified"]

    assert told("amends_steps_last_hour", connector="outside", state="verified") == 2
    assert told("amends_steps_last_hour", connector="outside", state="drifted") == 1
    assert told("amends_plans_last_hour", state="running") == 1
    assert told("amends_compensation_success_ratio") == pytest.approx(2 / 3)


def test_how_long_an_unwind_takes(case, world, told):
    advance(plan_for(case, world))

    assert told("amends_unwind_seconds_bucket", le="+Inf") == 1
    assert told("amends_unwind_seconds_bucket", le="3600.0") == 1
    assert told("amends_unwind_seconds_gsum") > 0


def test_a_connection_that_is_left_alone_shows(case, world, outside, told):
    assert told("amends_connection_breaker", connection="world") == 0
    for _ in range(calllog.FAILURES_MAX):
        outside.mischief("read c", status=503)
    plan = plan_for(case, world)
    for _ in range(calllog.FAILURES_MAX):
        by_hand.advance(plan.pk)
        make_due(plan)

    assert told("amends_connection_breaker", connection="world", workspace="acme") == 2
    assert told("amends_connection_failures_in_a_row", connection="world") == calllog.FAILURES_MAX
    Connection.objects.update(open_until=after(-1.0))
    assert told("amends_connection_breaker", connection="world") == 1


def test_cases_past_their_time_show(case, told):
    assert told("amends_cases_overdue", risk="medium") == 0

    Case.objects.update(due_at=after(-60.0))

    assert told("amends_cases_overdue", risk="medium") == 1


def test_without_a_database_there_are_no_figures_and_no_error(settings, told, monkeypatch):
    def away(*_):
        raise Error

    monkeypatch.setattr(metrics, "ask", away)

    assert told("amends_figures_up") == 0


def test_what_waits_shows_with_how_long_it_has_waited(case, world, told):
    assert told("amends_steps_ready") == told("amends_step_ready_oldest_seconds") == 0
    plan = plan_for(case, world)
    Plan.objects.update(was="waiting", state="running", started_at=after(-300.0))
    plan.steps.filter(position=1).update(moved_at=after(-300.0))

    assert told("amends_steps_ready") == 1
    assert told("amends_step_ready_oldest_seconds") > 299
    plan.steps.filter(position=1).update(wake_at=after(60.0))
    assert told("amends_steps_ready") == 0, "it is not due yet"
    Case.objects.update(unknown_count=2)
    assert told("amends_outcomes_unknown", of="action") == 2
    assert told("amends_outcomes_unknown", of="step") == 0


def test_a_log_that_went_back_and_loops_that_went_silent_show(case, told):
    assert told("amends_logs_went_back") == 0
    periodic.beat("ledger.seal", every_seconds=0.2, error="no key")
    Pause.objects.create(workspace=case.workspace, kind="workspace", name="ledger", reason="gone")

    assert told("amends_logs_went_back") == 1
    assert told("amends_heartbeat_failing", name="ledger.seal") == 1
    assert told("amends_heartbeat_patience_seconds", name="ledger.seal") == 30
    assert told("amends_heartbeat_age_seconds", name="ledger.seal") < 30


def test_an_alarm_of_silence_is_of_what_should_be_heard_here(case, told):
    """Of an older version's loop, and of one of several that was killed, nobody hears again."""
    for name in ("ledger.walls", "worker@gone/1", "worker", "sweeper"):
        periodic.beat(name, every_seconds=1)

    assert told("amends_heartbeat_age_seconds", name="ledger.walls") == []
    assert told("amends_heartbeat_age_seconds", name="worker@gone/1") == []
    assert told("amends_heartbeat_age_seconds", name="worker") < 30
    assert told("amends_heartbeat_age_seconds", name="scheduler") == math.inf, "it never ran"


def test_retention_that_never_came_to_its_end_lags_since_the_first_workspace(case, told):
    Workspace.objects.update(created_at=Now() - timedelta(hours=30))
    assert told("amends_retention_lag_seconds") > 29 * 3600

    periodic.done(periodic.RETENTION)
    assert told("amends_retention_lag_seconds") < 60


def test_messages_that_were_given_up_show_for_a_day_and_those_taken_back_do_not(case, told):
    def failed(key, **more):
        Delivery.objects.create(
            workspace=case.workspace, key=key, kind="mail", subject="s", state="failed", **more
        )

    failed("taken back", tries=1)
    failed("given up", tries=8)
    failed("given up long ago", tries=8, next_try_at=after(-90_000.0))

    assert told("amends_messages_unsent", state="failed") == 1
    assert told("amends_messages_unsent", state="waiting") == 0


def test_those_who_ask_for_messages_again_and_again_read_none_that_were_sent(case):
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        cursor.execute(f"EXPLAIN {metrics.MESSAGES}", [1, 1])
        plan = str(cursor.fetchall())
        cursor.execute("RESET enable_seqscan")
    assert ("delivery_due" in plan, "delivery_failed" in plan, "pkey" in plan) == (
        True,
        True,
        False,
    )


def test_processes_that_live_and_sessions_of_the_database_are_counted(case, told):
    assert told("amends_processes", kind="worker") == 0
    for name in ("worker@one/1", "worker@two/1", "worker", "ledger.seal"):
        periodic.beat(name, every_seconds=10)
    periodic.beat("worker@three/1", every_seconds=10)
    Heartbeat.objects.filter(pk="worker@three/1").update(beat_at=Now() - timedelta(hours=1))

    assert told("amends_processes", kind="worker") == 2
    with connection.cursor() as cursor:
        cursor.execute(f"SET ROLE {RUNTIME}")  # which is not told what another role does
        before = told("amends_database_sessions", state="other")
        with ExitStack() as sessions:
            for _ in range(10):
                sessions.enter_context(psycopg.connect(os.environ["DATABASE_OWNER_URL"]))
            # Those of other stories, which run beside this one, come and go.
            assert told("amends_database_sessions", state="other") > before + 5
        cursor.execute("RESET ROLE")
    assert told("amends_database_sessions", state="active") >= 1
    assert told("amends_database_sessions_max") > told("amends_database_sessions", state="active")
