"""Who reviewed a recovery, by role: what the affected person may know of it."""

from __future__ import annotations

from typing import Any

from approvals.models import ApprovalState, Decision
from recovery.models import Case, Plan, Step, StepState


def reviewers(case: Case) -> dict[str, Any]:
    """How many people approved what ran, in which roles, and whether it was read back."""
    plans = list(Plan.objects.filter(case=case, started_at__isnull=False).order_by("number"))
    decisions = Decision.objects.filter(
        approval__plan_id__in=[plan.pk for plan in plans],
        approval__workspace=case.workspace_id,
        approval__state=ApprovalState.USED,
        granted=True,
    ).select_related("requirement__team")
    roles = {
        one.requirement.team.name
        for one in decisions
        if one.requirement is not None and one.requirement.team is not None
    }
    steps = Step.objects.filter(plan__in=plans).exclude(
        state__in=[StepState.SKIPPED, StepState.CANCELLED]
    )
    ended = list(steps.values_list("state", flat=True))
    return {
        "approvers": len({one.person_id for one in decisions}),
        "roles": sorted(roles),
        "by_person": any(plan.drafted_by_id for plan in plans),
        "automatic": bool(plans) and all(plan.automatic for plan in plans),
        "read_back": bool(ended) and all(state == StepState.VERIFIED for state in ended),
    }
