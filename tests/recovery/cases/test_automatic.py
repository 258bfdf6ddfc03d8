"""Compensation by itself: only if every condition of the policy and of the desk holds."""

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from django.db.models import F
from django.utils import timezone

from ledger.models import Run
from recovery import restoration
from recovery.corrections import publishing
from recovery.models import Case, Correction, Plan
from recovery.planning import plans
from recovery.triage import automatic, triage
from tests.locks import behind
from tests.recovery.cases.conftest import POLICY
from tests.recovery.engine import by_hand

AUTOMATIC = POLICY + "  autoCompensation: {enabled: true, tools: ['tickets.*'], publish: true}\n"


@pytest.fixture
def by_itself(acme, policy):
    from approvals import versions

    return versions.activate(versions.save(acme, AUTOMATIC, by=None), by=None)


def swept():
    triage.look()
    started = automatic.sweep()
    for plan in Plan.objects.filter(state__in=["waiting", "starting", "running"]):
        by_hand.advance(plan.pk)
    triage.look()
    return started


def test_a_low_exact_trusted_undo_runs_and_is_told_without_anybody(by_itself, raised, shop):
    assert swept() == 1

    case = Case.objects.get()
    assert (case.outcome, case.plans.get().automatic) == ("restored", True)
    assert shop.execute("SELECT priority FROM tickets").fetchone() == ("normal",)
    publishing.draft_due()
    publishing.publish_due()
    correction = Correction.objects.get()
    assert correction.state == "published"
    assert correction.facts["reviewed"]["automatic"] is True
    assert correction.published_by is None
    assert swept() == 0


def test_what_a_person_had_a_hand_in_is_not_published_by_itself(by_itself, raised, ada):
    assert swept() == 1
    plan = Plan.objects.get()
    plan.pk, plan.number, plan.automatic, plan.drafted_by = None, 2, False, ada
    plan.save(force_insert=True)
    publishing.draft_due()

    assert publishing.publish_due() == 0
    assert Correction.objects.get().state == "draft"


@pytest.mark.parametrize("drafted", [True, False])
def test_after_a_restore_a_letter_that_may_have_gone_is_not_published_by_itself(
    by_itself, raised, acme, ada, drafted
):
    """Published and sent after the backup was taken: she would get it twice."""
    assert swept() == 1
    if drafted:
        publishing.draft_due()
    restoration.hold_everything(timezone.now(), {})
    publishing.draft_due()

    assert publishing.publish_due() == 0

    waits_for_a_person = Correction.objects.get()
    published = publishing.publish(waits_for_a_person, by=ada, seen=waits_for_a_person.revision)
    assert published.state == "published"


@pytest.mark.django_db(transaction=True)
def test_two_cases_of_a_target_considered_at_once_start_one_plan(
    by_itself, raised, begin_run, shop, ticket
):
    """Two schedulers found that nothing was undone lately; only one of them may go on. Each is let
    as far as its run, which is the last that it locks before it writes."""
    run = begin_run("run_2")
    run.does("tickets.update", ("ticket", "main/T-182", ticket, ticket | {"priority": "high"}))
    run.ends("failed")
    triage.look()
    drafts = [plans.draft(case) for case in Case.objects.order_by("pk")]
    assert [automatic.why_not(draft) for draft in drafts] == ["", ""]

    met = behind(
        lambda: list(Run.objects.select_for_update().order_by("pk")),
        *[
            partial(
                plans.submit, draft.case, digest=draft.digest, revision=draft.case.revision,
                by=None, reason="", automatic=True,
            )
            for draft in drafts
        ],
    )  # fmt: skip

    [refused] = [one for one in met if not isinstance(one, Plan)]
    assert isinstance(refused, plans.CannotSubmit), refused
    assert "within the hour" in str(refused)
    assert Plan.objects.count() == 1


def with_twin(acme, more):
    """The policy of these stories, with a twin that says something else of tickets."""
    from approvals import versions

    plain = '"tickets.*":       {connection: shop, operation: restore_row, args: {to: before}'
    assert plain in AUTOMATIC
    document = AUTOMATIC.replace(plain, plain + more)
    return versions.activate(versions.save(acme, document, by=None), by=None)


def held_back(case):
    """Nothing was started, and this is why."""
    assert swept() == 0
    assert not Plan.objects.exists()
    return automatic.why_not(plans.draft(case))


def test_what_is_not_exact_is_left_to_people(by_itself, acme, raised, shop):
    with_twin(acme, ", reversibility: compensable")

    assert held_back(raised.case()) == "A step is not exact."


def test_what_may_not_be_repeated_is_left_to_people(by_itself, raised, monkeypatch):
    from connectors.builtin.sql import Sql

    case = raised.case()
    promised = Sql.operations["restore_row"]
    nothing = replace(promised, idempotency="none", probe="none")
    monkeypatch.setitem(Sql.operations, "restore_row", nothing)

    assert held_back(case) == "A step may not be repeated."


def test_what_only_the_agent_suggests_is_left_to_people(by_itself, begin_run, shop, ticket):
    undo = {"connection": "shop", "operation": "restore_row", "args": {"to": ticket}}
    high = ticket | {"priority": "high"}
    shop.execute("UPDATE tickets SET priority = 'high', version = 2")
    run = begin_run()
    run.does("odd.tool", ("ticket", "main/T-182", ticket, high), planned={"compensation": undo})
    run.ends("failed")
    (one,) = plans.draft(run.case()).steps
    document = AUTOMATIC.replace("['tickets.*']", "['*']")
    from approvals import versions

    versions.activate(versions.save(run.row.workspace, document, by=None), by=None)

    assert one.suggested_by_agent
    assert held_back(run.case()) in {"A step needs approval.", "Only the agent suggests the step."}


def test_what_somebody_looks_at_is_left_to_them(by_itself, raised, ada):
    from recovery.casework import cases

    case = raised.case()
    cases.claim(case, by=ada, seen=case.revision)

    assert held_back(case).startswith("It needs a person")


def test_what_somebody_reported_is_left_to_people(by_itself, raised, ada):
    from recovery.casework import cases

    cases.report(raised.row, text="This was the wrong ticket", by=ada)

    assert held_back(raised.case()).startswith("It needs a person")


def test_what_cannot_be_read_is_left_to_people(by_itself, raised, shop):
    case = raised.case()
    shop.execute("ALTER TABLE tickets RENAME TO elsewhere")

    assert held_back(case) == "A target could not be read."


def raised_again(begin_run, shop, ticket):
    """By a second run, which failed."""
    shop.execute("UPDATE tickets SET priority = 'high', version = version + 1")
    run = begin_run("run_2")
    run.does("tickets.update", ("ticket", "main/T-182", ticket, ticket | {"priority": "high"}))
    return run.ends("failed")


def test_not_twice_an_hour_for_the_same_agent_tool_and_target_by_the_databases_clock(
    by_itself, raised, begin_run, shop, ticket, monkeypatch
):
    """F20: a scheduler whose clock is two hours behind undoes nothing twice."""
    right = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: right() - timedelta(hours=2))
    assert swept() == 1
    run = raised_again(begin_run, shop, ticket)

    assert swept() == 0
    assert "within the hour" in automatic.why_not(plans.draft(run.case()))


def test_after_the_hour_it_may_be_undone_again(by_itself, raised, begin_run, shop, ticket):
    assert swept() == 1
    Plan.objects.update(submitted_at=F("submitted_at") - timedelta(hours=1, seconds=1))
    raised_again(begin_run, shop, ticket)

    assert swept() == 1


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
def test_each_condition_holds_it_back(by_itself, begin_run, shop, ticket, story, why):
    high = ticket | {"priority": "high"}
    shop.execute("UPDATE tickets SET priority = 'high', version = version + 1")
    run = begin_run(trusted=story != "reported snapshot")
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
