"""What an outside system says is written down as far as it can be, and never stops the engine."""

import pytest

from ledger.models import Event
from recovery.engine import plan_runner, steps
from recovery.models import Step
from tests.recovery.engine import by_hand
from tests.recovery.engine.desk import case_of, make_due, plan_for, run_that, states

pytestmark = pytest.mark.django_db(transaction=True)

QUEUE = "connector.outside"
STRANGE = {
    "NUL": "a\x00b",
    "what parts our lists": "a\x1fb\x1ec\ufdd0d",
    "a large number": 1234567890123456789,
    "nesting": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["deep"]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]],
}
strange = pytest.mark.parametrize("said", STRANGE.values(), ids=STRANGE)


@pytest.fixture
def plan_of(handy, world, outside):
    """A running plan that sets one thing back to 1."""

    def arrange(name, there=None):
        outside.seed({name: there or {"v": 2}})
        case = case_of(run_that(handy, f"run_{name}", {name: ({"v": 1}, {"v": 2})}))
        plan = plan_for(case, world)
        by_hand.advance_once(plan.pk)
        return plan

    return arrange


@strange
def test_an_answer_is_kept(plan_of, outside, said):
    plan, other = plan_of("x"), plan_of("y")
    outside.mischief("x", says=said)

    plan_runner.run_together(other.pk, queue=QUEUE)

    assert [states(one) for one in (plan, other)] == [["verified"]] * 2
    assert plan.steps.get().attempts.get().evidence["said"]


@strange
def test_a_state_is_kept(plan_of, outside, said):
    plan, other = plan_of("x", there={"v": 2, "note": said}), plan_of("y")

    plan_runner.run_together(other.pk, queue=QUEUE)

    assert [states(one) for one in (plan, other)] == [["verified"]] * 2
    told = Event.objects.get(run=steps.run_of(plan), type="step.intended")
    assert told.data["before"][0]["note"]


@strange
def test_a_drift_is_shown(plan_of, outside, said):
    plan, other = plan_of("x", there={"v": said}), plan_of("y")

    plan_runner.run_together(other.pk, queue=QUEUE)

    assert [states(one) for one in (plan, other)] == [["drifted"], ["verified"]]
    assert plan.steps.get().drift[0]["now"]


@strange
def test_what_is_read_back_is_shown(plan_of, outside, said):
    plan = plan_of("x")
    in_hand = by_hand.claim(plan.steps.get().pk)
    Step.objects.filter(pk=in_hand.step.pk).update(was="intended", state="applied")
    outside.seed({"x": {"v": said}})

    make_due(plan)
    by_hand.advance(plan.pk)

    assert states(plan) == ["needs_human"]
    assert plan.steps.get().evidence["checks"][1]["actual"]
