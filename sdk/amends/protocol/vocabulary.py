"""The words that are written down: types of events, classes and risks of actions, globs over tools.

Their spelling is the wire's and the ledger's, and stays.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import Literal

KEYS_KEPT_DAYS = 400
"""For so long the desk knows event ids and idempotency keys, and whoever keeps them as long as it
does goes by this: of an older one nobody can tell whether it was there before.
"""


class EventType(StrEnum):
    """Every type of event that the ledger knows (docs/events.md); the first are the agents' own."""

    RUN_STARTED = "run.started"
    RUN_CHECKPOINT = "run.checkpoint"
    RUN_COMPLETED = "run.completed"
    RUN_FAILED = "run.failed"
    RUN_CANCELLED = "run.cancelled"
    RUN_RESUMED = "run.resumed"
    ACTION_PLANNED = "action.planned"
    ACTION_STARTED = "action.started"
    ACTION_SUCCEEDED = "action.succeeded"
    ACTION_FAILED = "action.failed"
    ACTION_VERIFIED = "action.verified"

    ACTION_APPROVED = "action.approved"
    ACTION_COMPENSATED = "action.compensated"
    ACTION_REFUSED = "action.refused"
    ACTION_SETTLED = "action.settled"

    AGENT_CREATED = "agent.created"

    ALERT_LOG_WENT_BACK = "alert.log_went_back"

    APPROVAL_AFFECTED_ANSWERED = "approval.affected_answered"
    APPROVAL_AFFECTED_ASKED = "approval.affected_asked"
    APPROVAL_ANSWERED = "approval.answered"
    APPROVAL_CHANGED = "approval.changed"
    APPROVAL_DENIED = "approval.denied"
    APPROVAL_DRAWN = "approval.drawn"
    APPROVAL_ESCALATED = "approval.escalated"
    APPROVAL_EXPIRED = "approval.expired"
    APPROVAL_GRANTED = "approval.granted"
    APPROVAL_PUT_OFF = "approval.put_off"
    APPROVAL_QUESTIONED = "approval.questioned"
    APPROVAL_REJECTED = "approval.rejected"
    APPROVAL_REMINDED = "approval.reminded"
    APPROVAL_REQUESTED = "approval.requested"
    APPROVAL_TOLD = "approval.told"
    APPROVAL_USED = "approval.used"
    APPROVAL_WITHDRAWN = "approval.withdrawn"

    BREAK_GLASS_BEGUN = "break_glass.begun"
    BREAK_GLASS_OPENED = "break_glass.opened"
    BREAK_GLASS_REVIEWED = "break_glass.reviewed"

    CASE_BULK_STARTED = "case.bulk_started"
    CASE_BULK_STOPPED = "case.bulk_stopped"
    CASE_CLAIMED = "case.claimed"
    CASE_CLOSED = "case.closed"
    CASE_COMMENTED = "case.commented"
    CASE_HANDED_OVER = "case.handed_over"
    CASE_OPENED = "case.opened"
    CASE_RELEASED = "case.released"
    CASE_RENEWED = "case.renewed"
    CASE_REOPENED = "case.reopened"
    CASE_REPORTED = "case.reported"
    CASE_RESIDUE_DONE = "case.residue_done"
    CASE_RESIDUE_MOVED = "case.residue_moved"
    CASE_SNOOZED = "case.snoozed"

    CHANNEL_CREATED = "channel.created"
    CHANNEL_DISABLED = "channel.disabled"
    CHANNEL_ENABLED = "channel.enabled"
    CHANNEL_TRIED = "channel.tried"

    CONNECTION_CREATED = "connection.created"
    CONNECTION_DISABLED = "connection.disabled"
    CONNECTION_ENABLED = "connection.enabled"
    CONNECTION_REHEARSED = "connection.rehearsed"
    CONNECTION_SECRET_SET = "connection.secret_set"  # noqa: S105 - a type of event
    CONNECTION_UPDATED = "connection.updated"

    CORRECTIONS_WORDED = "corrections.worded"
    CORRECTION_ANSWERED = "correction.answered"
    CORRECTION_CONTESTED = "correction.contested"
    CORRECTION_DELIVERED = "correction.delivered"
    CORRECTION_EDITED = "correction.edited"
    CORRECTION_HANDED_ON = "correction.handed_on"
    CORRECTION_PUBLISHED = "correction.published"
    CORRECTION_REVOKED = "correction.revoked"
    CORRECTION_UNDELIVERED = "correction.undelivered"

    DATA_EXPORTED = "data.exported"

    DELEGATION_BEGUN = "delegation.begun"
    DELEGATION_ENDED = "delegation.ended"
    DELEGATION_GIVEN = "delegation.given"

    DIRECTORY_PERSON_LET_BACK_IN = "directory.person_let_back_in"
    DIRECTORY_TEAM_HANDED_OVER = "directory.team_handed_over"

    INVITATION_WITHDRAWN = "invitation.withdrawn"

    KEY_CREATED = "key.created"
    KEY_REVOKED = "key.revoked"

    LEDGER_ACKNOWLEDGED = "ledger.acknowledged"
    LEDGER_ERASED = "ledger.erased"
    LEDGER_KEY_ROTATED = "ledger.key_rotated"
    LEDGER_ORIGIN_CHANGED = "ledger.origin_changed"
    LEDGER_THINNED = "ledger.thinned"

    LIST_CHANGED = "list.changed"

    MEMBER_ADDED = "member.added"
    MEMBER_INVITED = "member.invited"
    MEMBER_REMOVED = "member.removed"
    MEMBER_RENAMED = "member.renamed"
    MEMBER_VOUCHED = "member.vouched"

    PAUSE_LIFTED = "pause.lifted"
    PAUSE_PLACED = "pause.placed"

    PAYLOAD_REVEALED = "payload.revealed"

    PLAN_FINISHED = "plan.finished"
    PLAN_REJECTED = "plan.rejected"
    PLAN_STARTED = "plan.started"
    PLAN_STARTING = "plan.starting"
    PLAN_STOPPED = "plan.stopped"
    PLAN_SUBMITTED = "plan.submitted"
    PLAN_SUPERSEDED = "plan.superseded"

    POLICY_ACTIVATED = "policy.activated"
    POLICY_MEETABLE_AGAIN = "policy.meetable_again"
    POLICY_SAVED = "policy.saved"
    POLICY_SHADOW_ENDED = "policy.shadow_ended"
    POLICY_SHADOWED = "policy.shadowed"
    POLICY_UNMEETABLE = "policy.unmeetable"

    RESUME_ACKNOWLEDGED = "resume.acknowledged"
    RESUME_DIRECTED = "resume.directed"
    RESUME_UNANSWERED = "resume.unanswered"

    SIGNING_KEY_ENROLLED = "signing_key.enrolled"
    SIGNING_KEY_REMOVED = "signing_key.removed"

    STEP_APPLIED = "step.applied"
    STEP_CANCELLED = "step.cancelled"
    STEP_CLAIMED = "step.claimed"
    STEP_DRIFTED = "step.drifted"
    STEP_INTENDED = "step.intended"
    STEP_NEEDS_HUMAN = "step.needs_human"
    STEP_NO_EFFECT = "step.no_effect"
    STEP_READY = "step.ready"
    STEP_REPORTED = "step.reported"
    STEP_SKIPPED = "step.skipped"
    STEP_UNKNOWN = "step.unknown"
    STEP_VERIFIED = "step.verified"

    TEAM_CREATED = "team.created"
    TEAM_GRANTED = "team.granted"
    TEAM_WITHDRAWN = "team.withdrawn"

    WORKSPACE_CHANGED = "workspace.changed"


AGENT_EVENTS = frozenset(
    {
        EventType.RUN_STARTED,
        EventType.RUN_CHECKPOINT,
        EventType.RUN_COMPLETED,
        EventType.RUN_FAILED,
        EventType.RUN_CANCELLED,
        EventType.RUN_RESUMED,
        EventType.ACTION_PLANNED,
        EventType.ACTION_STARTED,
        EventType.ACTION_SUCCEEDED,
        EventType.ACTION_FAILED,
        EventType.ACTION_VERIFIED,
    }
)


DESK_EVENTS = frozenset(EventType) - AGENT_EVENTS
"""Said by people and by parts of the desk, and refused from every key."""


class ActionClass(StrEnum):
    """What a call does to the world, from lax to strict."""

    READ_ONLY = "read_only"
    DRAFT = "draft"
    INTERNAL_UPDATE = "internal_update"
    EXTERNAL_REVERSIBLE = "external_reversible"
    EXTERNAL_IRREVERSIBLE = "external_irreversible"


class Risk(StrEnum):
    """How much is at stake, from low to high."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


CLASSES, RISKS = tuple(ActionClass), tuple(Risk)

# As it is written where an agent says it.
EffectClass = Literal[
    "read_only", "draft", "internal_update", "external_reversible", "external_irreversible"
]
WITHOUT_EFFECT = frozenset({ActionClass.READ_ONLY, ActionClass.DRAFT})
"""Classes of calls that leave nothing to undo."""

UNCATALOGUED = ActionClass.EXTERNAL_REVERSIBLE
"""The class, and by it the risk, of a tool of which nobody says whom we believe."""

RISK_OF_CLASS = {
    ActionClass.READ_ONLY: Risk.LOW,
    ActionClass.DRAFT: Risk.LOW,
    ActionClass.INTERNAL_UPDATE: Risk.MEDIUM,
    ActionClass.EXTERNAL_REVERSIBLE: Risk.MEDIUM,
    ActionClass.EXTERNAL_IRREVERSIBLE: Risk.HIGH,
}


@lru_cache(maxsize=4096)
def _pattern(glob: str) -> re.Pattern[str]:
    words = {"*": ".*", "?": "."}
    return re.compile("".join(words.get(one) or re.escape(one) for one in glob), re.DOTALL)


def glob_matches(glob: str, tool: str) -> bool:
    """`*` stands for any characters, `?` for one."""
    return _pattern(glob).fullmatch(tool) is not None


def glob_specificity(glob: str) -> tuple[bool, int, int]:
    """The greater, the more specific: no wildcard first, then more letters, then fewer `*`."""
    wild = glob.count("*") + glob.count("?")
    return (wild == 0, len(glob) - wild, -glob.count("*"))
