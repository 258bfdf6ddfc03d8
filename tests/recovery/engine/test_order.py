"""The order law, told with the steps that still live."""

from hypothesis import given
from hypothesis import strategies as st

from recovery.engine.ordering_law import (
    LivingStep,
    PlanAction,
    next_act,
    next_act_of_stopped,
)
from recovery.models import StepState

LIVING = [
    state
    for state in StepState.values
    if state not in {"verified", "reported", "skipped", "cancelled"}
]


def steps(*states):
    """Steps, newest first, each on its own target unless one is named: "drifted@a"."""
    found = []
    for number, said in enumerate(states, 1):
        state, _, target = said.partition("@")
        found.append(LivingStep(number, state, ("thing", target or str(number))))
    return found


def running(*states, halt=False):
    """What a plan with these steps needs, and the number of which step, or None."""
    act, step = next_act(steps(*states), halt=halt)
    return act, step and step.id


def stopped(*states):
    act, step = next_act_of_stopped(steps(*states))
    return act, step and step.id


def test_the_newest_goes_first():
    assert running("ready", "blocked") == (PlanAction.RUN, 1)


def test_an_older_one_waits_for_the_newer_in_hand():
    assert running("intended", "blocked") == (PlanAction.WAIT, 1)


def test_a_drifted_one_holds_back_only_its_own_target():
    assert running("drifted@a", "blocked@a", "blocked@b") == (PlanAction.RUN, 3)


def test_under_halt_a_drifted_one_holds_back_everything():
    assert running("drifted@a", "blocked@b", halt=True) == (PlanAction.PEOPLE, 1)


def test_an_unknown_one_is_probed_before_anything_older_goes():
    assert running("unknown@a", "blocked@b") == (PlanAction.PROBE, 1)


def test_when_only_people_can_go_on_that_is_what_is_said():
    assert running("needs_human@a", "blocked@a") == (PlanAction.PEOPLE, None)


def test_a_plan_without_living_steps_is_finished():
    assert running() == (PlanAction.FINISH, None)


def test_a_stopped_plan_sees_through_what_is_on_the_wire_and_cancels_the_rest():
    assert stopped("drifted", "unknown", "blocked") == (PlanAction.PROBE, 2)
    assert stopped("drifted", "ready") == (PlanAction.CANCEL, 2)


some_steps = st.lists(
    st.builds(
        LivingStep,
        id=st.integers(1, 99),
        state=st.sampled_from(LIVING),
        target=st.tuples(st.just("thing"), st.sampled_from("abc")),
        due=st.booleans(),
        lease_over=st.booleans(),
    ),
    max_size=6,
    unique_by=lambda step: step.id,
)


@given(some_steps, st.booleans())
def test_nothing_runs_past_a_newer_one_on_the_same_target(living, halt):
    act, step = next_act(living, halt=halt)

    if act == PlanAction.RUN:
        place = living.index(step)
        newer = living[:place]
        assert all(step.target != living[place].target for step in newer)
        assert all(step.state in {"drifted", "needs_human", "blocked", "ready"} for step in newer)
        assert not (halt and any(step.state in {"drifted", "needs_human"} for step in newer))
