"""Who approved a call before it was made, by role and never by name: what stands behind an action
that an affected person is told of.
"""

from collections.abc import Collection
from typing import Any

from amends.protocol.masking import holds_mask
from approvals.gate import changed_arguments
from approvals.models import Approval, ApprovalState, GrantUse
from ledger.models import Action
from recovery.corrections import sentences


def of(actions: Collection[Action]) -> dict[int, dict[str, Any]]:
    """Per action that people had approved: how many, in which roles, whether they had changed it
    (`changes`, path by path), or had allowed it `ahead` by a bounded grant.
    """
    ids = [action.pk for action in actions]
    used = Approval.objects.filter(action__in=ids, state=ApprovalState.USED)
    found = {
        one.action_id or 0: _approved(one) | _changed(one)
        for one in used.select_related("action").order_by("pk")
    }
    for action in actions:
        if action.pk not in found and (ahead := _allowed_ahead(action)):
            found[action.pk] = _approved(ahead) | {"ahead": True}
    return found


def _allowed_ahead(action: Action) -> Approval | None:
    uses = GrantUse.objects.filter(
        run_ref=action.run.run, action=action.action, approval__workspace=action.workspace_id
    )
    use = uses.select_related("approval").order_by("pk").last()
    return use.approval if use else None


def _approved(approval: Approval) -> dict[str, Any]:
    decisions = approval.decisions.filter(granted=True).select_related("requirement__team")
    teams = {one.requirement.team for one in decisions if one.requirement}
    return {
        "people": len({one.person_id for one in decisions}),
        "roles": sorted(team.name for team in teams if team is not None),
    }


def _changed(approval: Approval) -> dict[str, Any]:
    if approval.replaces_id is None:
        return {}
    changes = changed_arguments.changes(approval) if approval.calls else []
    told = [
        {"field": one.field, "was": one.approved, "now": one.now}
        for one in changes
        if _may_stand(one.approved) and _may_stand(one.now)
    ]
    return {"changed": True, "changes": told if len(told) == len(changes) else []}


def _may_stand(value: Any) -> bool:
    return sentences.is_plain(value) and not holds_mask(value)


def told(asked: dict[str, Any] | None, *, own: bool) -> dict[str, Any]:
    """That people had approved it; what they changed is told to whoever asked alone."""
    if asked is None:
        return {}
    found = {"asked": asked if own else asked | {"changes": []} if "changes" in asked else asked}
    return found | {"approved": sentences.approved(found)}
