"""The engine one act at a time: what a worker does in batches, for stories that stop in between."""

from datetime import timedelta

from django.db import transaction
from django.db.models import Value
from django.db.models.expressions import Combinable

from connectors import calls
from connectors.contract import Answer, Observation, Operation
from recovery.engine import (
    ordering_law,
    outbound_calls,
    plan_runner,
    preconditions,
    protocol,
    steps,
)
from recovery.engine.approved_calls import Mismatch
from recovery.engine.ordering_law import PlanAction
from recovery.engine.plan_runner import PlanRunner
from recovery.engine.preconditions import Verdict
from recovery.engine.protocol import AnsweredTry, CheckedStep, ClaimedStep, Intent
from recovery.engine.step_batch import StepBatch
from recovery.models import Step, StepState
from workspaces.clock import Clock
from workspaces.moves import CannotMove
from workspaces.replica import DATABASE_AWAY


def after(seconds: float) -> Combinable:
    """So many seconds from now, by the database's clock."""
    return Clock() + Value(timedelta(seconds=seconds))


class Alone(PlanRunner):
    """One plan without company, which keeps what it failed with."""

    def __init__(self, plan_id: int, queue: str) -> None:
        super().__init__(plan_id, queue, capacity=1)
        self.failures: list[Exception] = []

    def _fail(self, plan_id: int, failure: Exception) -> None:
        self.failures.append(failure)
        super()._fail(plan_id, failure)


def advance(plan_id: int, *, queue: str = "") -> str:
    """Do what can be done now for one plan alone, by default whatever its connectors; in which
    queue to go on, mostly in none. Raises what we failed with.
    """
    runner = Alone(plan_id, queue)
    onward = runner.go()
    for failure in runner.failures:
        raise failure
    return onward.get(plan_id, "")


def advance_once(plan_id: int) -> None:
    """One act of the plan, or one step of it from its claim to its end."""
    for action in ordering_law.next_actions([plan_id]):
        if action.act == PlanAction.RUN:
            take_through(plan_runner.claim_each([steps.load(action.step)]))
        elif action.act in plan_runner.ACTS:
            plan_runner.ACTS[action.act](action)


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
    return next(iter(plan_runner.claim_each([steps.load(step_id)])), None)


def intend(
    held: ClaimedStep, operation: Operation, observation: Observation | None
) -> Intent | None:
    """Commit the intent, or give the step up and say why; raises CannotMove if it is not ours."""
    with transaction.atomic():
        found = protocol.intend_all([CheckedStep(held, operation, observation)])
    if held.step.pk in found.refused:
        raise CannotMove(held.step, StepState.INTENDED)
    return found.intents.get(held.step.pk)


def look(step: Step) -> Verdict:
    """Hold the target against what the step expects."""
    operation = preconditions.check_operation(step)
    if isinstance(operation, Mismatch):
        return operation
    return preconditions.check_target(
        step, operation, lambda: outbound_calls.observe(step) if operation.observes else None
    )


def send(intent: Intent, observation: Observation | None = None) -> Answer:
    """The call of a committed intent, without anything that would withhold it."""
    step = intent.step
    return calls.apply(
        step.connection,
        step.operation,
        step.args,
        outbound_calls.target_of(step),
        key=step.key,
        before=outbound_calls.before_of(step.effect),
        expected=outbound_calls.expected_of(step),
        must_be_true=step.post_condition,
        reason=step.plan.reason,
        observed=observation,
        sent_at=intent.attempt.intended_at,
    )


def settles(intent: Intent, operation: Operation, answer: Answer) -> bool:
    """Write the answer down; whether the step moved, or had been taken from us meanwhile."""
    with transaction.atomic():
        return bool(protocol.settle_all([AnsweredTry(intent, operation, answer)]))
