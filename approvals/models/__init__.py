"""Policy versions, questions to people, and their answers."""

from approvals.models.approvals import (
    APPROVAL_MOVES,
    LIVING,
    Approval,
    ApprovalState,
    Clarification,
    ConsentAnswer,
    ConsentRequest,
    Decision,
    GrantUse,
    NotificationKind,
    NotificationRecord,
    Requirement,
    SubjectKind,
)
from approvals.models.break_glass import BrokenGlass
from approvals.models.named_lists import ListChange, ListEntry, NamedList
from approvals.models.policy import (
    Denial,
    GateKey,
    Pause,
    PauseKind,
    PolicyVersion,
    Reservation,
    Sighting,
    Tally,
    ToolShape,
)
from approvals.models.reviews import Review
from approvals.models.signing_keys import SigningKey
from approvals.models.summaries import DailySummary

__all__ = [
    "APPROVAL_MOVES",
    "LIVING",
    "Approval",
    "ApprovalState",
    "BrokenGlass",
    "Clarification",
    "ConsentAnswer",
    "ConsentRequest",
    "DailySummary",
    "Decision",
    "Denial",
    "GateKey",
    "GrantUse",
    "ListChange",
    "ListEntry",
    "NamedList",
    "NotificationKind",
    "NotificationRecord",
    "Pause",
    "PauseKind",
    "PolicyVersion",
    "Requirement",
    "Reservation",
    "Review",
    "Sighting",
    "SigningKey",
    "SubjectKind",
    "Tally",
    "ToolShape",
]
