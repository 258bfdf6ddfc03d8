"""A page looks at many targets; a system that is down is asked once, and then left alone."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from approvals import policy as policies
from connectors import calllog
from connectors.builtin.sql import Sql
from connectors.models import CallLog, Connection
from recovery.planning import plans
from recovery.planning.drafting import connections_of, draft_steps
from recovery.run_facts import runs
from recovery.triage import case_projection, detectors
from tests.worlds import kept


@pytest.fixture
@kept(in_turn=True)
def case(begin_run, shop, ticket):
    """A run that raised three tickets, each a target of its own."""
    run = begin_run()
    for number in (1, 2, 3):
        row = ticket | {"id": f"T-{number}"}
        run.does("tickets.update", ("ticket", f"main/T-{number}", row, row | {"priority": "high"}))
    run.ends("failed")
    return run.case()


@pytest.fixture
def down(case, shop_connection):
    Connection.objects.update(settings=shop_connection.settings | {"database": "gone"})
    return Connection.objects


def test_a_look_at_many_targets_counts_one_failure(case, down):
    plans.draft(case)

    assert down.get().failures_in_a_row == 1
    assert CallLog.objects.filter(outcome="failed").count() == 3


def test_pages_that_are_loaded_again_and_again_leave_a_dead_system_alone(case, down):
    for _ in range(calllog.FAILURES_MAX):
        plans.draft(case)
    asked = CallLog.objects.count()

    for _ in range(5):
        draft = plans.draft(case)

    assert CallLog.objects.count() == asked
    one = down.get()
    assert one.failures_in_a_row == calllog.FAILURES_MAX
    assert {step.drift_state for step in draft.steps} == {"unknown"}
    assert all("left alone until" in step.notes[-1] for step in draft.steps)
    still = Connection.objects.filter(
        open_until__gt=Now() + timedelta(seconds=calllog.PAUSE_SECONDS)
    )
    assert not still.exists()


def test_a_look_that_finds_the_system_back_closes_the_circuit(case, down, shop_connection):
    for _ in range(calllog.FAILURES_MAX):
        plans.draft(case)
    down.update(settings=shop_connection.settings, open_until=Now() - timedelta(seconds=1))

    plans.draft(case)

    assert down.get().failures_in_a_row == 0


def test_one_target_is_tried_however_late_its_thread_begins(
    client, ada, policy, ticket, shop_connection, monkeypatch
):
    """On a busy machine every thread begins late; who tries one target waits for it, and no other
    call waits behind it."""
    monkeypatch.setattr("connectors.call_pool.STALE_SECONDS", 0.0)
    client.force_login(ada)
    said = {"operation": "restore_row", "target_type": "ticket", "target_id": "main/T-182"}

    answer = client.post("/w/acme/connectors/shop/try/", said)

    assert answer.status_code == 200
    assert CallLog.objects.get().outcome == "ok"


def test_steps_over_one_connection_ask_once_where_it_leads_and_each_says_it(case, monkeypatch):
    asked, place = [], Sql.place

    def heard(connector, settings):
        asked.append(settings.database)
        return place(connector, settings)

    monkeypatch.setattr(Sql, "place", heard)

    drafted = draft_steps(runs.facts_of(case.run), connections_of([case.workspace_id]))

    assert len(drafted.steps) == 3
    assert len(asked) == 1
    assert all(asked[0] in dict(one.preview.rows)["Over"] for one in drafted.steps)
    assert all(one.step.preview["rows"] == [*map(list, one.preview.rows)] for one in drafted.steps)


def test_a_look_judges_each_call_once_and_by_another_policy_anew(case, monkeypatch):
    asked: Counter[tuple[str, str]] = Counter()

    def heard(policy, call):
        asked[policy.digest, call.targets[0]["id"]] += 1
        return policies.judge(policy, call)

    monkeypatch.setattr(runs, "judge", heard)
    facts = runs.facts_of(case.run)

    found = detectors.reasons(facts, case)
    case_projection.case_file(facts, found, connections_of([case.workspace_id]), case)

    assert len(asked) == 3
    assert set(asked.values()) == {1}
    otherwise = replace(facts, policy=policies.default())
    first = facts.actions[0]
    assert otherwise.judgement(first).why.startswith("No rule fits")
    assert otherwise.judgement(first) != facts.judgement(first)
    assert asked.total() == 4
