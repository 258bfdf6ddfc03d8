"""Alerts: a step that needs a person must reach one."""

import logging

from django.conf import settings
from django.db.models import F

from connectors import channels
from connectors.channels import Message
from ledger.models import Run
from recovery.models import Step

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
    page = f"{settings.AMENDS_URL}/w/{step.workspace.slug}/cases/{step.plan.case_id}/"
    message = Message(
        title=f"Step {step.position} of case {step.plan.case_id} needs a person",
        text=f"{why}\nRun {run.run}, {step.connection.name}.{step.operation}.",
        url=page,
    )
    # One message for each time that it comes to stand there: the fence tells them apart.
    channels.announce(
        step.workspace, FAILED, message, key=f"step {step.pk} fence {step.fence} {step.tries}"
    )
