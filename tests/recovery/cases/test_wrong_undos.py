"""An undo that was wrong is undone like anything else, and only because a person said so."""

import pytest

from ledger.models import Run
from recovery.casework import cases
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
