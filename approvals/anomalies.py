"""What is unusual about a call, from the ledger's own history and never from what an agent says."""

from collections.abc import Iterator
from typing import Any

from approvals import manifests, policy
from approvals.models import Approval, ApprovalState, SubjectKind
from ledger.models import Action, ActionState, Effect
from workspaces import look
from workspaces.access import people_with

HISTORY_MAX = 200  # the newest ones; older ones say little about what is usual
ENOUGH_TO_COMPARE = 3
UNUSUAL_TIMES = 2
TARGETS_MAX = 5
RECIPIENTS_SHOWN_MAX = 5
RAN = (ActionState.RUNNING, ActionState.UNKNOWN, ActionState.SUCCEEDED, ActionState.FAILED)

Notice = dict[str, Any]


def anomalies(approval: Approval) -> Iterator[Notice]:
    """Notices for the card, the weightiest first."""
    yield from _unusual_amount(approval)
    yield from _reaches_out(approval)
    if approval.subject_kind == SubjectKind.ACTION:  # a plan undoes what is on record
        yield from _first_time(approval)


def _unusual_amount(approval: Approval) -> Iterator[Notice]:
    """Above twice the most that the same tool moved before, or, for a plan, earlier plans did."""
    if approval.amount_minor is None:
        return
    known = _amounts_of_tool(approval) if approval.action_id else _amounts_of_plans(approval)
    if len(known) < ENOUGH_TO_COMPARE or approval.amount_minor <= UNUSUAL_TIMES * max(known):
        return
    most = look.money(max(known), approval.currency)
    what = "calls of this tool" if approval.action_id else "plans that were approved"
    text = f"The most among the last {len(known)} {what} was {most}."
    yield {"tone": "bad", "title": "Unusual amount.", "text": text}


def _amounts_of_tool(approval: Approval) -> list[int]:
    """What the tool's manifest reads from its earlier calls, approved by people or not."""
    action = approval.action
    if action is None:
        return []
    entry = policy.active(approval.workspace).tool(action.tool)
    if entry is None or not entry.preview:
        return []
    earlier = Action.objects.filter(workspace=approval.workspace_id, tool=action.tool)
    rows = earlier.filter(state="succeeded").exclude(pk=action.pk).order_by("-id")
    found = (
        manifests.money(entry.preview, tool=one.tool, args=one.args, targets=one.targets or [])
        for one in rows[:HISTORY_MAX]
    )
    return [one.amount_minor for one in found if one and one.currency == approval.currency]


def _amounts_of_plans(approval: Approval) -> list[int]:
    used = Approval.objects.filter(
        workspace=approval.workspace_id,
        subject_kind=SubjectKind.PLAN,
        state=ApprovalState.USED,
        currency=approval.currency,
        pk__lt=approval.pk,
    ).exclude(amount_minor=None)
    found = used.order_by("-pk").values_list("amount_minor", flat=True)[:HISTORY_MAX]
    return [amount for amount in found if amount is not None]


def _reaches_out(approval: Approval) -> Iterator[Notice]:
    """Recipients whose mail domain is nobody's of the workspace."""
    reached = [str(one) for shown in approval.previews for one in shown.get("recipients") or []]
    addresses = [one for one in dict.fromkeys(reached) if "@" in one]
    if not addresses:
        return
    own = {
        domain_of(email)
        for email in people_with("view", approval.workspace).values_list("email", flat=True)
    }
    outside = [one for one in addresses if domain_of(one) not in own]
    if outside:
        more = len(outside) - RECIPIENTS_SHOWN_MAX
        names = ", ".join(outside[:RECIPIENTS_SHOWN_MAX]) + (f" and {more} more" * (more > 0))
        text = f"{names}: nobody here has an address there."
        yield {"tone": "wait", "title": "Reaches people outside.", "text": text}


def domain_of(address: str) -> str:
    return address.rpartition("@")[2].strip(" >").lower()


def _first_time(approval: Approval) -> Iterator[Notice]:
    if approval.action is None:
        return
    targets = approval.calls[0].get("targets") or [] if approval.calls else []
    new = [
        manifests.target_words(target)
        for target in targets[:TARGETS_MAX]
        if not _was_touched(approval, target)
    ]
    if new:
        text = f"Nothing on record was ever done to {', '.join(new)}."
        yield {"tone": "wait", "title": "First time.", "text": text}
    # Calls that ran or may have run: who asks again and again has not called anything.
    ran = Action.objects.filter(
        workspace=approval.workspace_id,
        tool=approval.action.tool,
        agent=approval.agent_id,
        state__in=RAN,
    )
    if not ran.exclude(pk=approval.action.pk).exists():
        text = f"{approval.agent} has never called {approval.action.tool_words} before."
        yield {"tone": "wait", "title": "First call of this tool.", "text": text}


def _was_touched(approval: Approval, target: dict[str, Any]) -> bool:
    effects = Effect.objects.filter(
        workspace=approval.workspace_id, target_type=target["type"], target_id=target["id"]
    )
    return effects.exclude(action=approval.action_id).exists()
