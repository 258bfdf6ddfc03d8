"""How long a compensation's outside call may take: the policy only ever shortens it."""

from datetime import UTC, datetime

import pytest

from recovery.engine import outbound_calls
from tests.approvals.cast import put_in_force
from tests.recovery.engine.desk import case_of, plan_for, run_that

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def sending(handy, world, outside, ada, limit):
    """The call of a step that is about to be sent, planned under a policy, with 20 s."""
    limit(20.0)

    def under(unwind):
        outside.seed({"x": {"v": 2}})
        if unwind is not None:
            put_in_force(handy.workspace, ada, {"unwind": unwind})
        plan = plan_for(case_of(run_that(handy, "run_x", {"x": ({"v": 1}, {"v": 2})})), world)
        step = plan.steps.get()
        return outbound_calls.applying(step, None, datetime.now(UTC)), outbound_calls.operation_of(
            step
        ).limit_seconds

    return under


def test_the_policy_s_timeout_bounds_the_outside_call(sending):
    call, limit = sending({"timeout": "1s"})
    assert call.limit_seconds == 1 < limit


@pytest.mark.parametrize("unwind", [None, {"strategy": "LIFO"}, {"timeout": "60s"}])
def test_the_operation_s_own_limit_is_never_exceeded(sending, unwind):
    call, limit = sending(unwind)
    assert call.limit_seconds == limit < 60
