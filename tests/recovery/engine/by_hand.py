"""The engine one act at a time: what a worker does in batches, for stories that stop in between."""

from django.db import transaction

from connectors.contract import Observation, Operation
from recovery.engine import claims, engine, intents, ordering_law, steps
from recovery.engine.claims import ClaimedStep
from recovery.engine.intents import Checked, Intent
from recovery.engine.ordering_law import Act
from recovery.engine.sql import DATABASE_AWAY
from recovery.engine.step_batch import StepBatch
from recovery.models import StepState
from workspaces.moves import CannotMove


def advance_once(plan_id: int) -> None:
    """One act of the plan, or one step of it from its claim to its end."""
    for turn in ordering_law.of([plan_id]):
        if turn.act == Act.RUN:
            take_through(claims.claim_each([steps.load(turn.step)]))
        else:
            engine.carry_out(turn)


def take_through(held: list[ClaimedStep]) -> None:
    """Take steps that are in our hands as far as they go."""
    batch = StepBatch()
    try:
        batch.take(held)
        while batch.is_under_way:
            batch.go_on()
        with transaction.atomic():
            batch.end()
        batch.close()
    except DATABASE_AWAY:
        batch.disperse()
        raise
    for failed in batch.failed:
        raise failed.why


def claim(step_id: int) -> ClaimedStep | None:
    """Take the step, whose turn the order law says it is; None is "not now"."""
    return next(iter(claims.claim_each([steps.load(step_id)])), None)


def intend(
    held: ClaimedStep, operation: Operation, observation: Observation | None
) -> Intent | None:
    """Commit the intent, or give the step up and say why; raises CannotMove if it is not ours."""
    with transaction.atomic():
        found = intents.intend_all([Checked(held, operation, observation)])
    if held.step.pk in found.refused:
        raise CannotMove(held.step, StepState.INTENDED)
    return found.intents.get(held.step.pk)
