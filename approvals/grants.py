"""Grants: what was approved runs once, while those who approved it still may."""

from collections.abc import Sequence
from functools import lru_cache

from django.db import transaction
from django.db.models.functions import Now

from approvals import deciders, digests
from approvals.digests import CallFacts
from approvals.models import Approval, ApprovalState
from approvals.policy import Judgement, Need
from approvals.policy.words import ASKING
from approvals.record import say

KEPT_MAX = 64
"""Approvals whose calls a process remembers; a plan is at work on one for a while."""

LIGHT = ("workspace", "digest", "state", "self_approval", "requested_by", "agent_owner")


@transaction.atomic
def use(approval_id: int, digest: str) -> bool:
    """Use the grant if it is granted, unused, of this digest, and by the database's clock alive.

    One conditional UPDATE: of any number of callers one hears True.
    """
    moved = Approval.objects.filter(
        pk=approval_id, state=ApprovalState.GRANTED, digest=digest, expires_at__gt=Now()
    ).update(was=ApprovalState.GRANTED, state=ApprovalState.USED, used_at=Now())
    if not moved:
        return False
    approval = Approval.objects.select_related("workspace", "action").get(pk=approval_id)
    say(approval, "approval.used", subject=approval.subject)
    return True


def digest_with(approval: Approval, calls: Sequence[CallFacts]) -> str:
    """The digest that the approval would have over `calls`: another one was not approved."""
    return digests.approval_digest(
        approval.workspace.slug,
        approval.subject,
        [digests.call_digest(call) for call in calls],
        approval.rules,
        approval.expires_at,
    )


def lost(approval_id: int, call_digest: str) -> str:
    """Why a call may no longer be made under this approval, which its plan has used; or nothing.

    A plan asks before each of its calls, so what grows with the plan is not read here.
    """
    approval = Approval.objects.select_related("workspace").only(*LIGHT).get(pk=approval_id)
    if approval.state != ApprovalState.USED:
        return "Its approval is no longer in force."
    if call_digest not in _calls_of(approval.pk, approval.digest):
        return "This call is not among those that were approved."
    return "" if still_entitled(approval) else "One who approved it may no longer do so."


@lru_cache(maxsize=KEPT_MAX)
def _calls_of(approval_id: int, digest: str) -> frozenset[str]:
    """The digests of the calls that add up to `digest`, which is what people approved.

    No other calls do, so they may be remembered: whoever changes the row changes its digest, too,
    or approves nothing with it.
    """
    approval = Approval.objects.select_related("workspace").get(pk=approval_id)
    found = [str(one.get("digest")) for one in approval.calls]
    adds_up = digests.approval_digest(
        approval.workspace.slug, approval.subject, found, approval.rules, approval.expires_at
    )
    return frozenset(found) if adds_up == digest else frozenset()


def differences(approval: Approval, calls: Sequence[CallFacts]) -> list[list[digests.Change]]:
    """Per call, what differs between approved and present, field by field."""
    if len(calls) != len(approval.calls):
        return [[digests.Change("calls", len(approval.calls), len(calls))]]
    return [
        digests.diff(approved, now) for approved, now in zip(approval.calls, calls, strict=True)
    ]


def still_entitled(approval: Approval) -> bool:
    """Whether everybody who had to approve did, is still active and still stands in the team."""
    return deciders.standing(approval).complete


def suffices(approval: Approval, judgement: Judgement) -> bool:
    """Whether the policy as it is now asks for no more than was approved.

    Where it no longer lets people approve their own, what they approved so is asked anew.
    """
    if judgement.stricter_than(asked_by(approval, judgement)):
        return False
    return judgement.self_approval or not rests_on_own(approval)


def rests_on_own(approval: Approval) -> bool:
    """Whether somebody who asked, or owns the agent, is among those who said yes."""
    askers = (approval.requested_by_id, approval.agent_owner_id)
    own = approval.decisions.filter(granted=True, person__in=[one for one in askers if one])
    return own.exists()


def asked_by(approval: Approval, now: Judgement) -> Judgement:
    """What the policy asked for when the approval was asked, beside what it asks for `now`."""
    needs = tuple(
        Need(one.team.name if one.team else None, one.count)
        for one in approval.requirements.select_related("team")
    )
    return Judgement(
        approval="MANUAL",
        risk=now.risk,
        action_class=now.action_class,
        requires=needs,
        fresh_login=approval.fresh_login,
        self_approval=approval.self_approval,
        affected=next((one for one in ASKING if one == approval.affected), ""),
        why="; ".join(str(rule.get("words") or "") for rule in approval.rules),
    )
