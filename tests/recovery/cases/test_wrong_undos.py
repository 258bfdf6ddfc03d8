"""An undo that was wrong is undone like anything else, and only because a person said so."""

import pytest

from ledger.models import Run
from recovery.casework import cases, closing
from recovery.engine import steps
from recovery.models import Case, CaseState
from recovery.planning import plans
from recovery.triage import triage
from tests.recovery.cases.cast import submitted
from tests.recovery.cases.conftest import POLICY
from tests.recovery.engine import by_hand


@pytest.fixture
def undone(raised, acme, ada, shop):
    """Ticket T-182 was put back to normal by the desk."""
    from approvals import versions

    twin = '    "shop.*":       {connection: shop, operation: restore_row, args: {to: before}}\n'
    document = POLICY.replace("  twins:\n", f"  twins:\n{twin}")
    versions.activate(versions.save(acme, document, by=None), by=None)
    case = raised.case()
    plan = submitted(case, ada, reason="x")
    by_hand.advance(plan.pk)
    assert shop.execute("SELECT priority FROM tickets").fetchone() == ("normal",)
    return Run.objects.get(run=steps.run_of(plan))


def test_a_wrong_undo_is_undone_once_a_person_reports_it(undone, shop, ada):
    triage.look()
    assert Case.objects.count() == 1, "nobody has said yet that it was wrong"

    case = cases.report(undone, text="It was high for a reason", by=ada)
    draft = plans.draft(case)
    [step] = draft.steps
    assert draft.why_not == "", draft.cannot
    plan = plans.submit(case, digest=draft.digest, revision=draft.case.revision, by=ada, reason="x")
    by_hand.advance(plan.pk)

    case.refresh_from_db()
    assert shop.execute("SELECT priority, assignee FROM tickets").fetchone() == ("high", "Nora")
    assert (case.state, case.outcome) == (CaseState.CLOSED, "restored")
    assert step.step.key != plan.case.run.case.plans.get().case.run.run
    triage.look()
    assert Case.objects.count() == 2


def test_what_is_told_only_after_all_was_undone_opens_the_case_again(raised, ticket, ada):
    """A spool came late: the case said that every effect was undone, and one stands."""
    case = raised.case()
    by_hand.advance(submitted(case, ada).pk)
    case = raised.case()
    assert (case.state, case.outcome, case.standing_count) == ("closed", "restored", 0)

    raised.does("tickets.update", ("ticket", "main/T-9", ticket, ticket | {"priority": "high"}))
    case = raised.case()

    assert (case.state, case.standing_count, case.suggestion) == ("open", 1, "compensate")
    assert case.reasons[0] == "told_after_undo"
    assert "told of tickets.update only after it had been undone" in case.headline
    seen = case.revision
    triage.look([case.run_id])
    case.refresh_from_db()
    assert (case.reasons[0], case.revision) == ("told_after_undo", seen), "it goes on telling of it"

    closing.close(case, outcome="expected", reason="It may stay", by=ada, seen=seen)
    assert raised.case().state == CaseState.CLOSED
