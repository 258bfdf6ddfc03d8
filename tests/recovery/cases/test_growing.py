"""A desk that grows: a page asks no more of the database for many cases than for few."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from recovery import search
from recovery.models import Case
from recovery.planning import plans
from recovery.triage import triage
from tests.recovery.cases.cast import AgentRun

pytestmark = pytest.mark.django_db


def runs_fail(agent, count, start=0):
    for number in range(start, start + count):
        told = AgentRun(agent, f"run_{number}").begins(f"Put ticket T-{number} right")
        told.does("tickets.update", ("ticket", f"T-{number}", {"v": 1}, {"v": 2}))
        told.ends("failed", error={"type": "Broken", "message": "it broke"})
    triage.look()


def asked(desk, path):
    """How many questions a page asks, when what it keeps in memory is there."""
    desk.get(path)
    with CaptureQueriesContext(connection) as questions:
        assert desk.get(path).status_code == 200
    return len(questions)


def test_the_queue_asks_as_much_for_nine_cases_as_for_two(desk, agent, policy):
    runs_fail(agent, 2)
    for_two = asked(desk, "/w/acme/queue/")

    runs_fail(agent, 7, start=2)

    assert asked(desk, "/w/acme/queue/") == for_two
    assert len(desk.get("/w/acme/queue/").context["cases"]) == 9


def test_a_word_is_found_by_its_index_though_it_may_be_a_run(acme, ada, agent, policy):
    runs_fail(agent, 3)

    by_word = search.matching(acme, search.parse("T-1"), by=ada)
    by_run = search.matching(acme, search.parse("run_2"), by=ada)

    assert [case.run.run for case in by_word] == ["run_1"]
    assert [case.run.run for case in by_run] == ["run_2"]
    assert "ledger_run" not in str(by_run.query)  # an OR over two tables has no index


def changes(agent, run, count):
    """The case of a run that changed so many tickets and broke."""
    told = AgentRun(agent, run).begins()
    for number in range(count):
        before, after = {"name": "Nora"}, {"name": "Eve"}
        told.does("users.update", ("customers", f"main/{run}-{number}", before, after))
    told.ends("failed", error={"type": "Broken", "message": "it broke"})
    triage.look()
    return Case.objects.get(run__run=run)


def test_a_plan_of_nine_steps_is_drafted_for_as_many_queries_as_one_of_two(
    agent, policy, shop_connection
):
    asked = []
    for count in (2, 9):
        case = changes(agent, f"run_{count}", count)
        plans.draft(case)
        with CaptureQueriesContext(connection) as queries:
            assert len(plans.draft(case).steps) == count
        asked.append(len(queries))

    assert asked[0] == asked[1]
