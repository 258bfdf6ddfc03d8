"""Who approved, by role and never by name, what an affected person is told of: a call before it was
made, and its recovery.
"""

from collections.abc import Collection, Iterable
from typing import Any

from django.db.models import OuterRef, Prefetch, Subquery, prefetch_related_objects

from amends.protocol.masking import holds_mask
from approvals import call_context, digests, grants
from approvals.models import Approval, ApprovalState, Decision, GrantUse
from ledger.fold.actions import NOT_AS_APPROVED
from ledger.models import Action
from recovery.corrections import sentences
from recovery.models import Case, Plan, Step, StepState
from recovery.models.plans import LEFT
from workspaces.models import Team


def of_calls(actions: Collection[Action]) -> dict[int, dict[str, Any]]:
    """Per action that people had approved: how many, in which roles, whether they had changed it
    (`changes`, path by path), or had allowed it `ahead` by a bounded grant. Nobody has approved
    what was made with other arguments, or by a later try than the one that they agreed to.
    """
    actions = [action for action in actions if NOT_AS_APPROVED not in action.flags]
    ids = [action.pk for action in actions]
    used = Approval.objects.filter(action__in=ids, state=ApprovalState.USED).order_by("pk")
    asked = {
        one.action_id or 0: one
        for one in used.select_related("action")
        if call_context.is_of_current_try(one)
    }
    ahead = _allowed_ahead([action for action in actions if action.pk not in asked])
    approved = _approved(asked.values()) | _approved(ahead.values())
    return {pk: approved[one.pk] | _changed(one) for pk, one in asked.items()} | {
        pk: approved[one.pk] | {"ahead": True} for pk, one in ahead.items()
    }


def _allowed_ahead(actions: Collection[Action]) -> dict[int, Approval]:
    """Per action whose last try a bounded grant let pass: the grant's approval. A use of which no
    try is known counts for whichever there was.
    """
    uses = GrantUse.objects.filter(
        run_ref__in={action.run.run for action in actions},
        action__in=[action.action for action in actions],
        approval__workspace__in={action.workspace_id for action in actions},
    )
    tries = grants.tries_since_use(OuterRef("approval__workspace")).values("attempt")
    known = uses.annotate(let_pass=Subquery(tries[:1])).select_related("approval").order_by("pk")
    used = {
        (use.approval.workspace_id, use.run_ref, use.action, use.let_pass): use.approval
        for use in known
    }
    return {
        one.pk: used[place]
        for one in actions
        for attempt in (None, one.current_attempt)
        if (place := (one.workspace_id, one.run.run, one.action, attempt)) in used
    }


def _approved(approvals: Iterable[Approval]) -> dict[int, dict[str, Any]]:
    """Per approval: how many people said yes to it, and in which roles."""
    granted = Decision.objects.filter(granted=True).select_related("requirement__team", "approval")
    known = {one.pk: one for one in approvals}
    prefetch_related_objects(list(known.values()), Prefetch("decisions", granted, "granted"))
    found = {}
    for pk, one in known.items():
        decisions: list[Decision] = vars(one)["granted"]
        found[pk] = {
            "people": len({each.person_id for each in decisions}),
            "roles": _roles(decisions),
        }
    return found


def _roles(decisions: Iterable[Decision]) -> list[str]:
    """In which teams they were asked for, each once; of who was asked for in none, those that they
    are in.
    """
    teams, others = set(), set()
    for each in decisions:
        team = each.requirement.team if each.requirement else None
        if team is None:
            others.add((each.approval.workspace_id, each.person_id))
        else:
            teams.add(team.name)
    for workspace, person in others:
        theirs = Team.objects.filter(workspace=workspace, group__user=person)
        teams |= set(theirs.values_list("name", flat=True))
    return sorted(teams)


def _changed(approval: Approval) -> dict[str, Any]:
    if approval.replaces_id is None:
        return {}
    changes = digests.changes_of(approval)
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


def of_recovery(case: Case) -> dict[str, Any]:
    """How many people approved what ran, in which roles, and whether it was read back."""
    plans = list(Plan.objects.filter(case=case, started_at__isnull=False).order_by("number"))
    decisions = Decision.objects.filter(
        approval__plan_id__in=[plan.pk for plan in plans],
        approval__workspace=case.workspace_id,
        approval__state=ApprovalState.USED,
        granted=True,
    ).select_related("requirement__team", "approval")
    steps = Step.objects.filter(plan__in=plans).exclude(state__in=LEFT)
    ended = list(steps.values_list("state", flat=True))
    return {
        "approvers": len({one.person_id for one in decisions}),
        "roles": _roles(decisions),
        "by_person": any(plan.drafted_by_id for plan in plans),
        "automatic": bool(plans) and all(plan.automatic for plan in plans),
        "read_back": bool(ended) and all(state == StepState.VERIFIED for state in ended),
    }
