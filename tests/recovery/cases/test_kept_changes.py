"""A plan says what it leaves: a later change that is kept, and what no step undoes."""

import pytest

from approvals.models import Approval
from ledger.models import Effect
from recovery.planning import plans
from tests.recovery.cases.cast import submitted


@pytest.mark.parametrize(
    ("changed", "title", "reversibility"),
    [
        (
            "assignee = 'Finn'",
            "Put back of ticket main/T-182 only what nobody has changed since",
            "exact",
        ),
        (
            "priority = 'urgent'",
            "Leave ticket main/T-182 as it stands: somebody has changed all of it since",
            "compensable",
        ),
    ],
)
def test_a_later_change_that_is_kept_is_not_titled_as_put_back_as_it_was(
    raised, shop, changed, title, reversibility
):
    case = raised.case()
    shop.execute(f"UPDATE tickets SET {changed}, version = version + 1")
    effect = Effect.objects.get()

    (step,) = plans.draft(case, choices={effect.pk: "rebase"}).steps

    assert (step.preview.title, step.step.preview["title"]) == (title, title)
    assert step.step.reversibility == reversibility


def test_who_is_asked_about_a_plan_reads_what_it_cannot_undo(begin_run, shop, ticket, ada):
    run = begin_run()
    run.does("tickets.update", ("customers", "main/T-182", ticket, ticket | {"priority": "high"}))
    run.does("mail.send", ("mail", "m-1", None, {"subject": "Invoice"}))
    run.ends("failed")

    submitted(run.case(), ada)

    assert Approval.objects.get().headline.endswith(" (1 effect cannot be undone)")
