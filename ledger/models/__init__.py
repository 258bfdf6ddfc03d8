"""The ledger's rows: events as they came, and what they add up to."""

from ledger.models.actions import Action, ActionState, Attempt, AttemptState, Compensated, Verified
from ledger.models.effects import Effect, Reversibility, SnapshotSource
from ledger.models.events import Blob, Event, EventConflict, EventKey, Unsealed
from ledger.models.forgotten import Erasure, ErasureState, Thinning
from ledger.models.log import Leaf, LogKey, TreeHead, TreeNode
from ledger.models.runs import Checkpoint, Run, RunState

__all__ = [
    "Action",
    "ActionState",
    "Attempt",
    "AttemptState",
    "Blob",
    "Checkpoint",
    "Compensated",
    "Effect",
    "Erasure",
    "ErasureState",
    "Event",
    "EventConflict",
    "EventKey",
    "Leaf",
    "LogKey",
    "Reversibility",
    "Run",
    "RunState",
    "SnapshotSource",
    "Thinning",
    "TreeHead",
    "TreeNode",
    "Unsealed",
    "Verified",
]
