"""A plan is carried out: newest effect first, each once, and read back."""

import pytest

from ledger.models import Event
from tests.recovery.engine.desk import advance, plan_for, states

pytestmark = pytest.mark.django_db


def test_everything_is_put_back_newest_first_and_the_case_closes_as_restored(case, world, outside):
    plan = plan_for(case, world)

    advance(plan)

    assert states(plan) == ["verified", "verified", "verified"]
    assert outside.effects() == ["c", "b", "a"]
    assert outside.thing("a") == {"v": 1}
    plan.refresh_from_db()
    case.refresh_from_db()
    assert (plan.state, case.state, case.outcome) == ("finished", "closed", "restored")


def test_a_receipt_is_recorded_as_a_receipt_and_restores_nothing(case, world):
    plan = plan_for(case, world, "refund_unseen")

    advance(plan)

    assert states(plan) == ["reported", "reported", "reported"]
    told = Event.objects.filter(type="action.compensated").values_list("data__verified", flat=True)
    assert list(told) == [False, False, False]
    plan.refresh_from_db()
    case.refresh_from_db()
    assert (plan.state, case.state, case.outcome) == ("finished", "open", "")
