"""Grants: what was approved runs once, while those who approved it still may."""

from collections.abc import Sequence

from django.db import transaction
from django.db.models.functions import Now

from approvals import deciders, digests
from approvals.digests import CallFacts
from approvals.models import Approval, ApprovalState
from approvals.policy import Judgement, Need
from approvals.policy.words import ASKING
from ledger import desk


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
    desk.say(
        approval.workspace,
        "approval.used",
        run=approval.run_ref,
        action=approval.action.action if approval.action else "",
        part="gate",
        data={"approval": approval.pk, "digest": approval.digest, "subject": approval.subject},
    )
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
    """Whether the policy as it is now asks for no more than was approved."""
    needs = tuple(
        Need(one.team.name if one.team else None, one.count)
        for one in approval.requirements.select_related("team")
    )
    approved = Judgement(
        approval="MANUAL",
        risk=judgement.risk,
        action_class=judgement.action_class,
        requires=needs,
        fresh_login=approval.fresh_login,
        affected=next((one for one in ASKING if one == approval.affected), ""),
    )
    return not judgement.stricter_than(approved)
