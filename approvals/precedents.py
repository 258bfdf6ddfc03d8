"""Precedents: what people decided before about the same targets."""

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Any

from approvals.models import Approval, ApprovalState
from workspaces import look

SHOWN_MAX = 5
TARGETS_MAX = 100
TARGET_CHARACTERS_MAX = 400


def targets_of(calls: Sequence[Mapping[str, Any]]) -> list[str]:
    """The targets of an approval's calls, each as `type id`, sorted; what the index holds."""
    found = set()
    for call in calls:
        for one in call.get("targets") or []:
            found.add(f"{one.get('type', '')} {one.get('id', '')}")
        if call.get("target_id"):
            found.add(f"{call.get('target_type', '')} {call['target_id']}")
    return sorted(one.strip()[:TARGET_CHARACTERS_MAX] for one in found)[:TARGETS_MAX]


def before(approval: Approval, zone: tzinfo) -> list[dict[str, Any]]:
    """The last approvals on one of the same targets that have ended, newest first."""
    if not approval.targets:
        return []
    ended = Approval.objects.filter(
        workspace=approval.workspace_id, targets__overlap=approval.targets, pk__lt=approval.pk
    ).exclude(state=ApprovalState.WAITING)
    rows = ended.select_related("workspace", "closed_by").prefetch_related("decisions__person")
    return [_told(one, zone) for one in rows.order_by("-pk")[:SHOWN_MAX]]


def _told(one: Approval, zone: tzinfo) -> dict[str, Any]:
    people = ", ".join(str(decision.person) for decision in one.decisions.all())
    return {
        "url": f"/w/{one.workspace.slug}/approvals/{one.pk}/",
        "title": one.headline,
        "state": "granted" if one.state == ApprovalState.USED else one.state,
        "by": people or str(one.closed_by or "nobody"),
        "reason": one.closing_reason,
        "when": look.moment(one.decided_at, "ago", zone),
    }
