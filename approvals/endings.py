"""What became of an approval, in one sentence: no more than is known of its call."""

from approvals import deciders, grants
from approvals.models import Approval, ApprovalState, SubjectKind
from ledger.fold.actions import NOT_AS_APPROVED
from ledger.models import ActionState
from workspaces import clock


def call_state(approval: Approval) -> str:
    """How the try ended that has used the grant, as far as that is known; empty where none has. A
    later try of the call was asked for anew, and how that went says nothing of this one.
    """
    action = approval.action if approval.state == ApprovalState.USED else None
    if action is None or is_of_current_try(approval):
        return action.state if action else ""
    used_it = action.attempts.filter(grants.known_without_effect(), attempt=approval.used_by)
    return ActionState.FAILED if used_it.exists() else ActionState.UNKNOWN


def is_of_current_try(approval: Approval) -> bool:
    """Whether what is known of its call is known of the try that it let pass."""
    action = approval.action
    return action is not None and approval.used_by in {"", action.current_attempt}


def _what_ran(approval: Approval) -> str:
    """How its call went, as far as that is known; of a plan its case says it."""
    if approval.subject_kind == SubjectKind.PLAN:
        return ". The plan was let go; how far it came stands on its case."
    action, state = approval.action, call_state(approval)
    if action is None:
        return "."
    if state == ActionState.SUCCEEDED and NOT_AS_APPROVED in action.flags:
        return ", and the agent says that it ran with other arguments than were approved."
    told: dict[str, str] = {
        ActionState.SUCCEEDED: ". What was approved is what ran, once.",
        ActionState.FAILED: ". The call failed, and nothing happened.",
        ActionState.UNKNOWN: ". Nobody knows whether the call took effect.",
        ActionState.RUNNING: ". The call has begun; how it ended was not told yet.",
    }
    return told.get(state, ". The call has not begun.")


def ended(approval: Approval) -> str:
    """What became of it, in one sentence; empty while people are asked."""
    reason = f": {approval.closing_reason}" if approval.closing_reason else ""
    by = f" by {approval.closed_by}" if approval.closed_by else " by the desk"
    if approval.subject_kind == SubjectKind.GRANT and not approval.closed_by_id:
        uses = grants.drawn_words(approval)
        if approval.state == ApprovalState.GRANTED:
            return f"Granted: {uses}."
        if approval.state == ApprovalState.USED:
            return f"Its time is over: {uses}."
    if approval.state == ApprovalState.EXPIRED:
        return f"Expired: {deciders.why_expired(approval)}."
    return {
        ApprovalState.WAITING: "",
        ApprovalState.GRANTED: "Approved for later, and not yet used."
        if grants.is_early(approval, clock.now())
        else "Approved, and not yet used.",
        ApprovalState.USED: f"Approved, and used{_what_ran(approval)}",
        ApprovalState.REJECTED: f"Rejected{by}{reason}",
        ApprovalState.WITHDRAWN: f"Withdrawn{by}{reason}",
    }[ApprovalState(approval.state)]
