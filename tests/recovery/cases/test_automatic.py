"""Compensation by itself: only if every condition of the policy and of the desk holds."""

import pytest

from recovery.corrections import aftercare
from recovery.engine import engine
from recovery.models import Case, Correction, Plan
from recovery.planning import automatic, plans
from recovery.triage import triage
from tests.recovery.cases.conftest import POLICY

AUTOMATIC = POLICY + "  autoCompensation: {enabled: true, tools: ['tickets.*'], publish: true}\n"


@pytest.fixture
def by_itself(acme, policy):
    from approvals import versions

    return versions.activate(versions.save(acme, AUTOMATIC, by=None), by=None)


def swept():
    triage.look()
    started = automatic.sweep()
    for plan in Plan.objects.filter(state__in=["waiting", "starting", "running"]):
        engine.advance(plan.pk)
    triage.look()
    return started


def test_a_low_exact_trusted_undo_runs_and_is_told_without_anybody(by_itself, raised, shop):
    assert swept() == 1

    case = Case.objects.get()
    assert (case.outcome, case.plans.get().automatic) == ("restored", True)
    assert shop.execute("SELECT priority FROM tickets").fetchone() == ("normal",)
    aftercare.draft_due()
    aftercare.publish_due()
    correction = Correction.objects.get()
    assert correction.state == "published"
    assert correction.facts["reviewed"]["automatic"] is True
    assert correction.published_by is None
    assert swept() == 0


def test_not_twice_an_hour_for_the_same_agent_tool_and_target(
    by_itself, raised, tell, shop, ticket
):
    assert swept() == 1
    run = tell("run_2")
    high = ticket | {"priority": "high"}
    shop.execute("UPDATE tickets SET priority = 'high', version = version + 1")
    run.does("tickets.update", ("ticket", "main/T-182", ticket, high))
    run.ends("failed")

    assert swept() == 0

    case = run.case()
    assert "within the hour" in automatic.why_not(plans.draft(case))


@pytest.mark.parametrize(
    ("story", "why"),
    [
        ("live", "live"),
        ("reported snapshot", "only reported"),
        ("drift", "has drifted"),
        ("another tool", "does not allow it for this tool"),
        ("no way back", "needs a person"),
        ("high risk", "needs approval"),
    ],
)
def test_each_condition_holds_it_back(by_itself, tell, shop, ticket, story, why):
    high = ticket | {"priority": "high"}
    shop.execute("UPDATE tickets SET priority = 'high', version = version + 1")
    run = tell(trusted=story != "reported snapshot")
    tool = {"another tool": "users.update"}.get(story, "tickets.update")
    action = run.does(tool, ("ticket", "main/T-182", ticket, high))
    if story == "no way back":
        run.does("mail.send", ("mail", "m-1", None, {"to": "eve"}))
    if story == "high risk":
        shop.execute("INSERT INTO customers (id, name) VALUES (7, 'Eve')")
        run.does("tickets.touch", ("customers", "7", {"name": "Gil"}, {"name": "Eve"}))
    run.is_verified(action, ok=False)
    if story != "live":
        run.ends()
    if story == "drift":
        shop.execute("UPDATE tickets SET assignee = 'Finn'")

    assert swept() == 0

    assert why in automatic.why_not(plans.draft(Case.objects.get()))
    assert not Plan.objects.exists()


def test_nothing_runs_by_itself_unless_the_policy_says_so(raised):
    assert swept() == 0
