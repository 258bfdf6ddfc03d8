"""The order law, told with the steps that still live."""

from hypothesis import given
from hypothesis import strategies as st

from recovery.engine.ordering_law import (
    LivingStep,
    NextStep,
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


def test_the_newest_goes_first():
    assert next_act(steps("ready", "blocked"), halt=False) == NextStep(PlanAction.RUN, 1)


def test_an_older_one_waits_for_the_newer_in_hand():
    assert next_act(steps("intended", "blocked"), halt=False) == NextStep(PlanAction.WAIT, 1)


def test_a_drifted_one_holds_back_only_its_own_target():
    assert next_act(steps("drifted@a", "blocked@a", "blocked@b"), halt=False) == NextStep(
        PlanAction.RUN, 3
    )


def test_under_halt_a_drifted_one_holds_back_everything():
    assert next_act(steps("drifted@a", "blocked@b"), halt=True) == NextStep(PlanAction.PEOPLE, 1)


def test_an_unknown_one_is_probed_before_anything_older_goes():
    assert next_act(steps("unknown@a", "blocked@b"), halt=False) == NextStep(PlanAction.PROBE, 1)


def test_when_only_people_can_go_on_that_is_what_is_said():
    assert next_act(steps("needs_human@a", "blocked@a"), halt=False).act == PlanAction.PEOPLE


def test_a_plan_without_living_steps_is_finished():
    assert next_act([], halt=False).act == PlanAction.FINISH


def test_a_stopped_plan_sees_through_what_is_on_the_wire_and_cancels_the_rest():
    assert next_act_of_stopped(steps("drifted", "unknown", "blocked")) == NextStep(
        PlanAction.PROBE, 2
    )
    assert next_act_of_stopped(steps("drifted", "ready")) == NextStep(PlanAction.CANCEL, 2)


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
    following = next_act(living, halt=halt)

    if following.act == PlanAction.RUN:
        place = [step.id for step in living].index(following.step)
        newer = living[:place]
        assert all(step.target != living[place].target for step in newer)
        assert all(step.state in {"drifted", "needs_human", "blocked", "ready"} for step in newer)
        assert not (halt and any(step.state in {"drifted", "needs_human"} for step in newer))
