"""From the agent's snapshot to the restored row: nothing is rounded, and nothing is guessed."""

import json

import pytest

from amends.protocol.masking import holds_mask
from recovery.models import CaseState, Plan, PlanState, StepState
from recovery.planning import plans
from recovery.planning.plans import CannotSubmit
from tests.recovery.cases.cast import submitted
from tests.recovery.engine import by_hand

WIDE = 1152921504606846977
IS = "SELECT tags::text, price::text, version FROM tickets"


@pytest.fixture
def row(shop, ticket):
    """The row as an agent reads it, with an integer in JSON that no double holds."""
    shop.execute(
        "UPDATE tickets SET price = 12.50, tags = %s",
        [f'{{"id": {WIDE}, "text": "{WIDE}", "list": [18446744073709551617]}}'],
    )
    tags = {"id": WIDE, "text": str(WIDE), "list": [18446744073709551617]}
    return ticket | {"tags": tags, "price": "12.50", "version": 1}


def changes(run, shop, before, **changed):
    """One call of the agent, told with the version that it read and the one that it left."""
    after = before | changed | {"version": before["version"] + 1}
    run.does("tickets.update", ("ticket", "main/T-182", before, after))
    return after


def test_an_integer_of_any_size_in_a_json_column_is_restored_as_the_number_that_it_was(
    begin_run, shop, row, ada
):
    (was, price, _) = shop.execute(IS).fetchone()
    run = begin_run()
    changes(run, shop, row, tags={"id": WIDE + 1}, price="99.99")
    shop.execute(
        "UPDATE tickets SET price = 99.99, version = 2, tags = %s", [json.dumps({"id": WIDE + 1})]
    )
    run.ends("failed")
    case = run.case()

    draft = plans.draft(case)
    (step,) = draft.steps
    assert (step.drift_state, step.drift) == ("unchanged", [])
    assert step.step.args["to"]["tags"]["id"] == WIDE
    plan = submitted(case, ada)
    by_hand.advance(plan.pk)

    plan.refresh_from_db()
    case.refresh_from_db()
    assert plan.steps.get().state == StepState.VERIFIED
    assert (case.state, case.outcome) == (CaseState.CLOSED, "restored")
    assert shop.execute(IS).fetchone() == (was, price, 3)


def test_an_edit_that_makes_the_number_a_text_is_drift(begin_run, shop, row):
    run = begin_run()
    changes(run, shop, row, tags={"id": 7})
    shop.execute("""UPDATE tickets SET version = 2, tags = '{"id": "7"}'""")
    run.ends("failed")

    (step,) = plans.draft(run.case()).steps

    assert [(one["agent_wrote"], one["now"]) for one in step.drift] == [({"id": 7}, {"id": "7"})]


def test_what_cannot_be_carried_is_said_when_the_plan_is_drawn_and_hinders_no_other_step(
    begin_run, shop, row, ada
):
    """An older client told the number as a text: it could have been either."""
    shop.execute("INSERT INTO customers VALUES (7, 'Eve', 'eve@old.example')")
    run = begin_run()
    before = row | {"tags": {"id": str(WIDE)}}
    changes(run, shop, before, tags={"id": str(WIDE + 2)})
    shop.execute("UPDATE tickets SET version = 2, tags = %s", [json.dumps({"id": WIDE + 2})])
    eve = {"id": 7, "name": "Eve", "email": "eve@old.example"}
    run.does("tickets.move", ("customers", "7", eve, eve | {"email": "eve@new.example"}))
    shop.execute("UPDATE customers SET email = 'eve@new.example'")
    run.ends("failed")
    case = run.case()
    stands = shop.execute(IS).fetchone()

    draft = plans.draft(case)

    (cannot,) = draft.cannot
    assert cannot.code == "refused"
    assert "tags cannot be restored as it was" in cannot.text
    assert "was recorded as text, and may be a number" in cannot.text
    assert [one.step.target_type for one in draft.steps] == ["customers"]
    plan = submitted(case, ada)
    assert plan.steps.count() == 1
    assert shop.execute(IS).fetchone() == stands


def test_where_nothing_can_be_carried_there_is_no_plan(begin_run, shop, row, ada):
    run = begin_run()
    changes(run, shop, row | {"tags": {"id": "inf"}}, tags={"id": 1})
    shop.execute("""UPDATE tickets SET version = 2, tags = '{"id": 1}'""")
    run.ends("failed")
    case = run.case()

    with pytest.raises(CannotSubmit, match="can be undone"):
        submitted(case, ada)

    assert not Plan.objects.exists()


def test_snapshots_that_hold_the_version_are_no_drift_nor_after_a_newer_step(
    begin_run, shop, row, ada
):
    """Each restore gives the row a version that nobody has read; the older step finds that one."""
    run = begin_run()
    once = changes(run, shop, row, priority="high")
    changes(run, shop, once, assignee="Tom")
    shop.execute("UPDATE tickets SET priority = 'high', assignee = 'Tom', version = 3")
    run.ends("failed")
    case = run.case()

    newer, older = plans.draft(case).steps
    assert (newer.drift_state, older.drift_state) == ("unchanged", "later")
    assert not holds_mask(newer.step.args)
    plan = submitted(case, ada)
    by_hand.advance(plan.pk)

    plan.refresh_from_db()
    assert plan.state == PlanState.FINISHED
    assert {one.state for one in plan.steps.all()} == {StepState.VERIFIED}
    assert shop.execute("SELECT priority, assignee, version FROM tickets").fetchone() == (
        "normal",
        "Nora",
        5,
    )


def test_of_a_row_that_is_told_in_part_the_rest_is_held_against_what_it_was(
    begin_run, shop, row, ada
):
    """The agent tells only what it changed. Tom's later change stands in a column of the rest."""
    run = begin_run()
    shop.execute("UPDATE tickets SET priority = 'high', version = 2")
    run.does("tickets.update", ("ticket", "main/T-182", row, {"priority": "high"}))
    run.ends("failed")
    case = run.case()
    (untouched,) = plans.draft(case).steps
    shop.execute("UPDATE tickets SET assignee = 'Tom', version = 3")

    (step,) = plans.draft(case).steps
    plan = submitted(case, ada, choices={step.effect.pk: "rebase"})
    by_hand.advance(plan.pk)

    assert untouched.drift_state == "unchanged"
    assert (step.drift_state, [one["field"] for one in step.drift]) == ("drifted", ["assignee"])
    assert plan.steps.get().state == StepState.VERIFIED
    now = shop.execute("SELECT priority, assignee FROM tickets").fetchone()
    assert now == ("normal", "Tom")


def test_where_nobody_told_how_the_agent_left_it_no_page_says_that_it_is_unchanged(
    begin_run, shop, row, ada, client
):
    run = begin_run()
    shop.execute("UPDATE tickets SET priority = 'high', assignee = 'Tom', version = 3")
    action = run.plans("tickets.update", ("ticket", "main/T-182"), before=[row])
    run.send("action.succeeded", action, attempt="1")
    run.ends("failed")
    case = run.case()

    (step,) = plans.draft(case).steps
    client.force_login(ada)
    page = client.get(f"/w/acme/cases/{case.pk}/compensate/").content.decode()

    assert step.drift_state == "untold"
    assert "nobody told how it was left: a later change would be lost" in page
    assert "unchanged since the agent" not in page
