"""The newest plan of a case, step by step, as it stands."""

from typing import Any

from approvals.models import Approval
from recovery.models import Case, Plan, Step
from recovery.models.plans import LIVING
from recovery.views.here import case_url
from workspaces.access import may
from workspaces.models import User

STEPS_SHOWN_MAX = 200
# What a step in this state says under its title.
OUTCOMES = {
    "verified": "Read back: it is as it should be.",
    "reported": "The other side says it is done; it cannot be read back.",
    "skipped": "Left as it is.",
    "cancelled": "Not done.",
}


def card(case: Case, person: User) -> dict[str, Any] | None:
    """The newest plan with its steps as they stand."""
    plan = case.plans.order_by("-number").first()
    if plan is None:
        return None
    living = plan.state in LIVING
    steps = plan.steps.select_related("connection").order_by("position")[:STEPS_SHOWN_MAX]
    url = case_url(case)
    stops = living and may(person, "recover", case.workspace)
    return {
        "number": plan.number,
        "digest": plan.digest[:12],
        "state": plan.state,
        "steps": [_step(case, step) for step in steps],
        "untouched": [],
        "progress_url": f"{url}progress/" if living else "",
        "stop_url": f"{url}stop/" if stops else "",
        "approval": _approval(case, plan),
    }


def _step(case: Case, step: Step) -> dict[str, Any]:
    waits_for_person = step.state in ("unknown", "needs_human", "drifted")
    return {
        "number": step.position,
        "title": step.preview.get("title") or f"{step.operation} {step.target_id}",
        "text": f"{step.connection.name} · {step.operation}",
        "state": step.state,
        "reversibility": step.reversibility,
        "drift": "It changed since the agent wrote it." if step.state == "drifted" else "",
        "diff": [
            {
                "field": one.get("field"),
                "was": one.get("agent_wrote"),
                "now": one.get("now"),
                "kind": "drifted",
            }
            for one in step.drift or []
        ]
        if step.state == "drifted"
        else [],
        "waits": step.note if step.state not in OUTCOMES else "",
        "outcome": OUTCOMES.get(step.state, ""),
        "url": f"{case_url(case)}settle/?step={step.pk}" if waits_for_person else "",
    }


def _approval(case: Case, plan: Plan) -> dict[str, str] | None:
    if plan.approval_id is None:
        return None
    approval = Approval.objects.filter(pk=plan.approval_id).first()
    if approval is None:
        return None
    return {
        "url": f"/w/{case.workspace.slug}/approvals/{approval.pk}/",
        "words": f"Approval: {approval.get_state_display().lower()}",
    }
