"""Alerts: a step that needs a person must reach one, and so must a plan that we fail at."""

import logging

from django.conf import settings
from django.db import transaction
from django.db.models import F

from connectors import channels
from connectors.channels import Message
from ledger.models import Run
from recovery.engine.clock import DATABASE_AWAY
from recovery.models import Case, CaseState, Plan, Step

logger = logging.getLogger(__name__)

FAILED = "compensation.failed"
"""The subject to which a channel subscribes."""


def step_needs_a_person(step: Step, why: str) -> None:
    """Bring the case back into the queue and tell its channels; the caller holds the transaction.

    Triage looks at runs whose revision it has not seen, so raising it is enough: the table is the
    queue, and nothing is lost if this process dies after its commit. The message goes out by
    itself, with its own retries, and names no arguments.
    """
    logger.warning("step %d of plan %d needs a person: %s", step.position, step.plan_id, why)
    run = step.effect.action.run
    Run.objects.filter(pk=run.pk).update(revision=F("revision") + 1)
    message = Message(
        title=f"Step {step.position} of case {step.plan.case_id} needs a person",
        text=f"{why}\nRun {run.run}, {step.connection.name}.{step.operation}.",
        url=_page(step.plan),
    )
    # One message for each time that it comes to stand there: the fence tells them apart.
    channels.announce(
        step.workspace, FAILED, message, key=f"step {step.pk} fence {step.fence} {step.tries}"
    )


def plan_fails(plan_id: int, failure: Exception) -> None:
    """Tell that the engine itself fails at a plan, once for each kind of failure: every hint fails
    again, and would be found in the log alone. Its case goes back into the queue as open.

    In a transaction of its own; raises only where the database is away.
    """
    try:
        with transaction.atomic():
            _plan_fails(plan_id, type(failure).__name__)
    except DATABASE_AWAY:
        raise
    except Exception:
        logger.exception("Nobody could be told that the engine fails at plan %d.", plan_id)


def _plan_fails(plan_id: int, kind: str) -> None:
    plan = Plan.objects.select_related("case__run", "workspace").get(pk=plan_id)
    Case.objects.filter(pk=plan.case_id, state=CaseState.RECOVERING).update(
        state=CaseState.OPEN, revision=F("revision") + 1
    )
    message = Message(
        title=f"Plan {plan.number} of case {plan.case_id} does not go on",
        text=f"The desk itself fails at it with {kind}: the worker's log says where. It is tried "
        f"again. What was sent stays on the record.\nRun {plan.case.run.run}.",
        url=_page(plan),
    )
    channels.announce(plan.workspace, FAILED, message, key=f"plan {plan.pk} fails {kind}")


def _page(plan: Plan) -> str:
    return f"{settings.AMENDS_URL}/w/{plan.workspace.slug}/cases/{plan.case_id}/"
