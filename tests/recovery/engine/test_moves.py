"""Every pair of states is tried against the database, so that table and constraint stay one."""

import itertools

import pytest
from django.db import IntegrityError, connection, transaction

from recovery.models import PLAN_MOVES, STEP_MOVES, PlanState, StepState
from tests.recovery.engine.desk import plan_for
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


def test_the_database_allows_a_plan_exactly_the_moves_of_the_table(case, world):
    plan = plan_for(case, world)

    for was, state in EVERY_PLAN_PAIR:
        allowed = state in PLAN_MOVES[was]
        assert can_be_written("recovery_plan", plan.pk, was, state) == allowed, (was, state)


def test_every_ended_state_leads_nowhere():
    ended = {state for state, following in STEP_MOVES.items() if not following}

    assert ended == {"verified", "reported", "skipped", "cancelled"}
