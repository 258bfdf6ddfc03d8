"""Every pair of states is tried against the database, so that table and constraint stay one."""

import itertools

import pytest
from django.db import IntegrityError, connection, transaction

from recovery.models import CASE_MOVES, PLAN_MOVES, STEP_MOVES, CaseState, PlanState, StepState
from recovery.models.plans import DONE, ENDED, HOLDS_TARGET, LEFT, TO_RUN, TROUBLED
from tests.recovery.engine.desk import case_of, plan_for, run_that
from workspaces.moves import BORN

pytestmark = pytest.mark.django_db

EVERY_STEP_PAIR = itertools.product([BORN, *StepState.values], StepState.values)
EVERY_PLAN_PAIR = itertools.product([BORN, *PlanState.values], PlanState.values)


def can_be_written(table, row, was, state):
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE {table} SET was = %s, state = %s WHERE id = %s", [was, state, row]
            )
    except IntegrityError:
        return False
    return True


def test_the_database_allows_a_step_exactly_the_moves_of_the_table(case, world):
    step = plan_for(case, world).steps.get(position=1)

    for was, state in EVERY_STEP_PAIR:
        allowed = state in STEP_MOVES[was]
        assert can_be_written("recovery_step", step.pk, was, state) == allowed, (was, state)


def test_every_state_of_a_step_belongs_to_a_set_so_that_no_page_or_sweep_leaves_one_out():
    assert {*TO_RUN, *HOLDS_TARGET, *TROUBLED, *DONE, *LEFT} == set(StepState)
    assert {*DONE, *LEFT} == ENDED


def test_the_database_allows_a_plan_exactly_the_moves_of_the_table(case, world):
    plan = plan_for(case, world)

    for was, state in EVERY_PLAN_PAIR:
        allowed = state in PLAN_MOVES[was]
        assert can_be_written("recovery_plan", plan.pk, was, state) == allowed, (was, state)


def test_the_database_allows_a_case_exactly_the_moves_of_the_table(case, subtests):
    """By a bare UPDATE of the state alone: what a process of an older version writes, too."""
    row = type(case).objects.filter(pk=case.pk)
    for was, state in itertools.permutations(CaseState.values, 2):
        with subtests.test(was=was, state=state), transaction.atomic():
            if was != CaseState.OPEN:
                row.update(state=was)
            allowed = state in CASE_MOVES[was]
            try:
                with transaction.atomic():
                    row.update(state=state)
            except IntegrityError:
                assert not allowed
            else:
                assert allowed
                assert row.values_list("was", "state").get() == (was, state)
            transaction.set_rollback(True)


def test_every_ended_state_leads_nowhere():
    ended = {state for state, following in STEP_MOVES.items() if not following}

    assert ended == {"verified", "reported", "skipped", "cancelled"}


IN_THE_WAY = [
    ("one_active_step_of_a_plan", ("claimed", "intended")),
    ("one_active_step_of_a_target", ("claimed", "intended", "unknown", "applied", "lost")),
]


def stands(step, state):
    """Put the step there, past every verb; `lost` is what waits for a person out of unknown."""
    was = "unknown"
    if state != "lost":
        was = next(was for was, following in STEP_MOVES.items() if state in following)
    state = "needs_human" if state == "lost" else state
    type(step).objects.filter(pk=step.pk).update(was=was, state=state)


@pytest.mark.parametrize(
    ("index", "state"), [(name, state) for name, states in IN_THE_WAY for state in states]
)
def test_the_database_keeps_a_second_active_step_out(handy, case, world, outside, index, state):
    """Of one plan, and of one target over all plans, also where the other one is lost."""
    first = plan_for(case, world).steps.get(position=1)
    if index == "one_active_step_of_a_plan":
        second = first.plan.steps.get(position=2)
    else:
        outside.seed({"c": {"v": 3}})
        run = run_that(handy, "run_2", {"c": ({"v": 2}, {"v": 3})})
        second = plan_for(case_of(run), world).steps.get()
    stands(first, state)

    with pytest.raises(IntegrityError, match=index), transaction.atomic():
        stands(second, "claimed")

    stands(first, "skipped")
    stands(second, "claimed")


def test_an_effect_has_one_living_step_in_all_plans(case, world):
    first = plan_for(case, world)
    type(first).objects.filter(pk=first.pk).update(was="running", state="stopped")

    with pytest.raises(IntegrityError, match="one_living_step_of_an_effect"), transaction.atomic():
        plan_for(case, world)

    for step in first.steps.all():
        stands(step, "cancelled")
    assert plan_for(case, world).steps.count() == 3
