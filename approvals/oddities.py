"""What is unusual about a call, from the ledger's own history and never from what an agent says."""

from collections.abc import Iterator
from typing import Any

from approvals.models import Approval, ApprovalState, SubjectKind
from ledger.models import Effect
from workspaces import look

HISTORY_MAX = 200  # the newest ones; older ones say little about what is usual
ENOUGH_TO_COMPARE = 3
UNUSUAL_TIMES = 2
TARGETS_MAX = 5


def oddities(approval: Approval) -> Iterator[dict[str, Any]]:
    """Notices for the card, the weightiest first."""
    if approval.subject_kind != SubjectKind.ACTION:
        return  # a plan undoes what is on record, so its targets are known
    yield from _unusual_amount(approval)
    yield from _first_time(approval)


def _unusual_amount(approval: Approval) -> Iterator[dict[str, Any]]:
    if approval.amount_minor is None or approval.action is None:
        return
    earlier = (
        Approval.objects.filter(
            workspace=approval.workspace_id,
            agent=approval.agent_id,
            action__tool=approval.action.tool,
            currency=approval.currency,
            amount_minor__isnull=False,
            state=ApprovalState.USED,
            pk__lt=approval.pk,
        )
        .order_by("-pk")
        .values_list("amount_minor", flat=True)[:HISTORY_MAX]
    )
    known = [amount for amount in earlier if amount is not None]
    if len(known) < ENOUGH_TO_COMPARE or approval.amount_minor <= UNUSUAL_TIMES * max(known):
        return
    most = look.money(max(known), approval.currency)
    text = f"The most of the last {len(known)} approved by people was {most}."
    yield {"tone": "bad", "title": "Unusual amount.", "text": text}


def _first_time(approval: Approval) -> Iterator[dict[str, Any]]:
    targets = approval.calls[0].get("targets") or [] if approval.calls else []
    new = [
        f"{target['type']} {target['id']}"
        for target in targets[:TARGETS_MAX]
        if not _was_touched(approval, target)
    ]
    if new:
        text = f"Nothing on record was ever done to {', '.join(new)}."
        yield {"tone": "wait", "title": "First time.", "text": text}


def _was_touched(approval: Approval, target: dict[str, Any]) -> bool:
    effects = Effect.objects.filter(
        workspace=approval.workspace_id, target_type=target["type"], target_id=target["id"]
    )
    return effects.exclude(action=approval.action_id).exists()
