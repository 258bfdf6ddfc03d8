"""Policy versions, questions to people, and their answers."""

from approvals.models.approvals import (
    APPROVAL_MOVES,
    Approval,
    ApprovalState,
    Decision,
    Requirement,
    SubjectKind,
)
from approvals.models.denials import Denial
from approvals.models.enquiries import Enquiry
from approvals.models.keys import GateKey
from approvals.models.pauses import Pause, PauseKind
from approvals.models.policy import PolicyVersion
from approvals.models.told import About, Told
from approvals.models.wishes import Wish, WishAnswer

__all__ = [
    "APPROVAL_MOVES",
    "About",
    "Approval",
    "ApprovalState",
    "Decision",
    "Denial",
    "Enquiry",
    "GateKey",
    "Pause",
    "PauseKind",
    "PolicyVersion",
    "Requirement",
    "SubjectKind",
    "Told",
    "Wish",
    "WishAnswer",
]
