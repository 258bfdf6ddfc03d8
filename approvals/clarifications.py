"""Asking back: a decider's question to whoever asked, answered by the agent or an operator.

Neither question nor answer changes the approval or its digest: what runs is what the card shows,
and time goes on. Both are on the record.
"""

from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from amends.protocol.vocabulary import EventType
from approvals import notifications
from approvals.deciders import locked
from approvals.digests import record
from approvals.inbox import NotEntitled, may_answer
from approvals.models import Approval, ApprovalState, Clarification
from approvals.signals import publish_on_commit
from workspaces import access
from workspaces.free_text import REASON_CHARACTERS_MAX, kept_text
from workspaces.models import User
from workspaces.moves import CannotMove

ANSWER_CHARACTERS_MAX = 8_000
"""An agent's, too: what it may send at all has 16 KiB (gate/waiting.py)."""

CLARIFICATIONS_MAX = 20
"""Of one approval; whoever still does not know after that should say no."""


@transaction.atomic
def ask_back(approval: Approval, question: str, *, by: User) -> Clarification:
    """Ask before deciding; once more what is not answered yet is the question that stands. Raises
    NotEntitled, InvalidInput, or CannotMove where it is over.
    """
    text = kept_text(question, REASON_CHARACTERS_MAX, asking="Write what you want to know.")
    approval = _open(approval)
    may_answer(approval, by)
    same = approval.clarifications.filter(asked_by=by, question=text, answered_at=None)
    if stands := same.first():
        return stands
    if approval.clarifications.count() >= CLARIFICATIONS_MAX:
        raise NotEntitled(approval, "asked", f"{CLARIFICATIONS_MAX} questions were asked already")
    clarification = Clarification.objects.create(approval=approval, asked_by=by, question=text)
    _record(approval, EventType.APPROVAL_QUESTIONED, by=by, enquiry=clarification.pk, question=text)
    notifications.questioned(approval, clarification)
    publish_on_commit(approval.pk, approval.subject_kind)
    return clarification


@transaction.atomic
def answer(clarification: Clarification, words: str, *, by: User) -> Clarification:
    """Answer as a person: whoever asked for it, the agent's owner, or an operator."""
    approval = _open(clarification.approval)
    if not may_reply(approval, by):
        raise NotEntitled(approval, "answered", "only operators and whoever asked reply")
    return _answered(approval, clarification, words, by=by)


@transaction.atomic
def answer_as_agent(clarification: Clarification, words: str) -> Clarification:
    """Answer as the agent that waits; the words are shown as an agent's, untrusted."""
    approval = _open(clarification.approval)
    return _answered(approval, clarification, words, by=None)


def may_reply(approval: Approval, person: User) -> bool:
    if person.pk in approval.askers:
        return access.may(person, "view", approval.workspace)
    return access.may(person, "recover", approval.workspace)


def _open(approval: Approval) -> Approval:
    fresh = locked(approval)
    if fresh.state != ApprovalState.WAITING:
        state = fresh.get_state_display().lower()
        raise CannotMove(fresh, "answered", f"it is already {state}")
    return fresh


def _answered(
    approval: Approval, clarification: Clarification, words: str, *, by: User | None
) -> Clarification:
    text = kept_text(words, ANSWER_CHARACTERS_MAX, asking="Write an answer.")
    waiting = Clarification.objects.filter(pk=clarification.pk, answered_at=None)
    if not waiting.update(answer=text, answered_by=by, answered_at=Now()):
        raise CannotMove(clarification, "answered", "it is answered already")
    clarification.refresh_from_db()
    _record(approval, EventType.APPROVAL_ANSWERED, by=by, enquiry=clarification.pk, answer=text)
    notifications.answered(approval, clarification)
    return clarification


def _record(approval: Approval, event: EventType, *, by: User | None, **data: Any) -> None:
    """An agent's answer is told by the gate, which names the agent: it has no voice of its own."""
    agent = {} if by or approval.agent is None else {"agent": approval.agent.name}
    record(approval, event, by=by, **agent, **data)
