"""What a plan adds to the sums of rules where nobody has to be asked."""

from approvals import versions
from approvals.models import Tally
from recovery.models import PlanState
from tests.recovery.cases.cast import submitted
from tests.recovery.cases.conftest import POLICY
from tests.recovery.engine import by_hand


def test_a_plan_that_needs_no_approval_counts_from_its_submission_on(raised, shop, acme, ada):
    """Its rule counts all calls of the connection, and asks about none like this one."""
    when = "args.to.id == 'T-1' && count(over: '1h') > 5"
    rule = f'always: {{"shop.*": [{{when: "{when}", approval: MANUAL}}]}}'
    source = f"{POLICY}\n  {rule}"
    case = raised.case()
    versions.activate(versions.save(acme, source, by=None), by=None)

    plan = submitted(case, ada)

    assert (plan.state, plan.approval_id) == (PlanState.RUNNING, None)
    assert list(Tally.objects.get().buckets.values()) == ["1.0000000000"]
    by_hand.advance(plan.pk)
    assert list(Tally.objects.get().buckets.values()) == ["1.0000000000"]
