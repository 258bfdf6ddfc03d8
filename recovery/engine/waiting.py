"""Waiting: a step whose turn it is, and whose target is in other hands."""

from django.db.models import Q

from recovery.engine import steps
from recovery.models import Step

SECONDS = 2.0
"""Until a step that found its target in other hands, or a pause, looks again."""


def for_the_other(step: Step) -> None:
    """Let it look again in a while, and say for whom it waits."""
    other = (
        Step.objects.filter(
            workspace_id=step.workspace_id,
            target_type=step.target_type,
            target_id=step.target_id,
        )
        .exclude(plan_id=step.plan_id)
        .filter(
            Q(state__in=["claimed", "intended", "unknown", "applied"])
            | Q(state="needs_human", was="unknown")
        )
        .select_related("plan")
        .first()
    )
    if other is not None:
        steps.put_off(step, SECONDS, note=f"Waits for case {other.plan.case_id}")
