"""Masked fields and recovery: they block nothing that nobody touched, and drift is what it is."""

from dataclasses import replace

import pytest

from ledger.desk_events import masking_key
from recovery.models import PlanState
from recovery.planning import drafting, plans
from recovery.planning.drafting import CannotUndo
from tests.recovery.cases.cast import submitted
from tests.recovery.engine import by_hand

HIDES = ("before.assignee", "after.assignee")


@pytest.fixture
def hidden(begin_run, shop, ticket, acme):
    """A run that changed T-182 so, where the workspace masks who a ticket is assigned to."""

    def begin(*, keyed=True, before=None, **changes):
        run = begin_run()
        key = masking_key(acme) if keyed else None
        run.actor = replace(run.actor, mask=HIDES, masking_key=key)
        for column, value in changes.items():
            shop.execute(f"UPDATE tickets SET {column} = '{value}', version = version + 1")
        was = ticket if before is None else before
        run.does("tickets.update", ("ticket", "main/T-182", was, ticket | changes))
        run.ends("failed")
        return run.case()

    return begin


def test_a_masked_field_that_nobody_touched_blocks_nothing_and_is_left_as_it_is(hidden, shop, ada):
    case = hidden(priority="high")

    (step,) = plans.draft(case).steps
    assert step.drift_state == "unchanged"
    assert "assignee" not in step.step.args["to"]
    assert step.step.reversibility == "compensable"  # exact is only what is known as a whole
    plan = submitted(case, ada)
    by_hand.advance(plan.pk)

    plan.refresh_from_db()
    assert plan.state == PlanState.FINISHED
    assert shop.execute("SELECT priority, assignee FROM tickets").fetchone() == ("normal", "Nora")


def test_a_masked_field_that_somebody_changed_since_is_drift(hidden, shop):
    case = hidden(priority="high")
    shop.execute("UPDATE tickets SET assignee = 'Finn', version = version + 1")

    (step,) = plans.draft(case).steps

    assert step.drift_state == "drifted"
    assert [one["field"] for one in step.drift] == ["assignee"]


def test_a_masked_field_that_the_agent_changed_is_not_restored_from_here(hidden):
    case = hidden(assignee="Finn")

    assert {one.code for one in plans.draft(case).cannot} == {"masked"}


def test_what_was_masked_without_a_mark_is_never_drift(hidden, shop, ada):
    case = hidden(keyed=False, before={"priority": "normal"}, priority="high")

    (step,) = plans.draft(case).steps
    assert step.drift_state == "unchanged"
    plan = submitted(case, ada)
    by_hand.advance(plan.pk)

    assert shop.execute("SELECT priority, assignee FROM tickets").fetchone() == ("normal", "Nora")


def test_a_rebase_keeps_what_both_changed_and_never_copies_a_masked_value_into_a_plan(acme):
    mark = masking_key(acme).placeholder("iban", "DE89370400440532013000")
    before = {"a": 1, "b": 1, "iban": mark}
    after = {"a": 2, "b": 2, "iban": mark}
    now = {"a": 2, "b": 3, "iban": "DE89370400440532013000"}

    assert drafting.rebased(before, after, now) == {"a": 1, "b": 3, "iban": mark}
    with pytest.raises(CannotUndo):
        drafting.rebased(before | {"iban": None}, after, now)
