"""Policy versions, questions to people, and their answers."""

from approvals.models.approvals import (
    APPROVAL_MOVES,
    Approval,
    ApprovalState,
    Clarification,
    ConsentAnswer,
    ConsentRequest,
    Decision,
    NotificationKind,
    NotificationRecord,
    Requirement,
    SubjectKind,
)
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

__all__ = [
    "APPROVAL_MOVES",
    "Approval",
    "ApprovalState",
    "Clarification",
    "ConsentAnswer",
    "ConsentRequest",
    "Decision",
    "Denial",
    "GateKey",
    "NotificationKind",
    "NotificationRecord",
    "Pause",
    "PauseKind",
    "PolicyVersion",
    "Requirement",
    "Reservation",
    "Sighting",
    "SubjectKind",
    "Tally",
    "ToolShape",
]
