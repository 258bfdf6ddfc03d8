"""A question outlives the policy that asked it: what the one in force now would do with its call.

It is told to whoever decides, in words, and decides nothing: what waits for people stays theirs.
Nor does a program take it from them with a token, by a policy or a list that asks no more.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import transaction
from django.db.models import Q

from approvals import grants, plan_sums
from approvals.gate.changed_arguments import as_asked
from approvals.gate.slow_path import decided
from approvals.gate.slow_path_statements import ASKING
from approvals.models import Approval, ApprovalState, PolicyVersion, SubjectKind
from approvals.policy import PolicyDecision, PolicyUnreadable, active, judge, strictest
from edge.asgi import Refused
from ledger.models import Action
from workspaces import formatting, locks
from workspaces.free_text import InvalidInput
from workspaces.models import Workspace

QUESTIONS_MAX = 500
"""Each is judged twice, in some milliseconds; where more are open only a page does it."""
STILL_YOURS = "The question stays open, and what you answer counts"


def notice(approval: Approval) -> dict[str, Any] | None:
    """What the policy in force would do with an open question that an earlier one asked; None where
    it asks as it was asked, or nobody can tell.
    """
    is_judged = approval.subject_kind != SubjectKind.GRANT and approval.calls  # else erased
    if approval.state != ApprovalState.WAITING or not is_judged:
        return None
    since = PolicyVersion.objects.filter(
        workspace=approval.workspace_id, active=True, activated_at__gt=approval.asked_at
    ).first()
    judgement = None if since is None else _judged(approval)
    if since is None or judgement is None:
        return None
    came = f"Version {since.number} of the policy came into force after this was asked"
    what = "this plan" if approval.subject_kind == SubjectKind.PLAN else "this call"
    if judgement.approval == "DENY":
        why = formatting.plain(judgement.why)
        return {
            "tone": "bad",
            "title": f"The policy in force now never allows {what}.",
            "text": f"{came}: {why}. {_in_vain(approval)} {STILL_YOURS}: reject it, or have the"
            " policy changed.",
        }
    if judgement.approval == "AUTO":
        return {
            "tone": "wait",
            "title": f"The policy in force now would ask nobody about {what}.",
            "text": f"{came}. {STILL_YOURS}.{_meanwhile(approval)}",
        }
    if grants.suffices(approval, judgement):
        return None
    wanted = " and ".join(map(str, judgement.requires))
    return {
        "tone": "wait",
        "title": f"The policy in force now asks more about {what}: {wanted}.",
        "text": f"{came}. After a yes people are asked anew, by its rules.",
    }


def notice_of_many(approvals: Sequence[Approval]) -> dict[str, Any] | None:
    """That the policy in force is newer than some of these questions of one workspace; what it
    would do with each is for the card to say, for they may differ.
    """
    if not approvals:
        return None
    earliest = min(one.asked_at for one in approvals)
    since = PolicyVersion.objects.filter(
        workspace=approvals[0].workspace_id, active=True, activated_at__gt=earliest
    ).first()
    if since is None or since.activated_at is None:
        return None
    before = sum(one.asked_at < since.activated_at for one in approvals)
    of_all = "all" if before == len(approvals) else f"{before}"
    return {
        "tone": "wait",
        "title": "The policy has changed since these were asked.",
        "text": f"Version {since.number} came into force after {of_all} of them. The card of each"
        " says what it would do now, where that is something else.",
    }


class AnswersQuestions(Exception):
    """We stopped because calls that people are asked about would go on without them: have them
    answered first, or do it on the page. `approvals` are the numbers of these questions.
    """

    def __init__(self, approvals: Sequence[int]) -> None:
        many = len(approvals) > 1
        super().__init__(
            f"{len(approvals)} open question{'s' * many} would go on without people, and a token"
            f" decides nothing: have {'them' if many else 'it'} answered first, or do this on the"
            " page."
        )
        self.approvals = list(approvals)


@contextmanager
def answering_none(workspace: Workspace) -> Iterator[None]:
    """What is done within, in one transaction, lets pass no call that waits for people: who has no
    card in front of them decides nothing by another way. Raises AnswersQuestions, or InvalidInput
    where too many are open to say; nothing was done then. Who asks meanwhile is seen, or asks
    afterwards, by what is so then.
    """
    with transaction.atomic():
        locks.locked(Workspace.objects.all()).get(pk=workspace.pk)
        passed = set(_passing(workspace))
        locks.advisory(ASKING, workspace.pk)  # not before: agents wait for it, each in a thread
        yield
        if answered := [pk for pk in _passing(workspace) if pk not in passed]:
            raise AnswersQuestions(answered)


def _passing(workspace: Workspace) -> list[int]:
    """The open questions that would be asked of nobody as things stand in this transaction."""
    about_calls = Approval.objects.open().exclude(Q(subject_kind=SubjectKind.GRANT) | Q(calls=[]))
    waiting = list(about_calls.filter(workspace=workspace).order_by("pk")[: QUESTIONS_MAX + 1])
    if len(waiting) > QUESTIONS_MAX:
        raise InvalidInput(
            f"More than {QUESTIONS_MAX} questions wait for people, too many to see whether this"
            " answers one: do it on the page."
        )
    judged = ((one.pk, _judged(one)) for one in waiting)
    return [pk for pk, found in judged if found is not None and found.approval == "AUTO"]


def _judged(approval: Approval) -> PolicyDecision | None:
    """What the gate would say of the call now, or the policy of the plan's steps."""
    try:
        if approval.subject_kind == SubjectKind.PLAN:
            policy = active(approval.workspace_id)
            return strictest(judge(policy, call) for call in plan_sums.steps_of(approval))
        action = Action.objects.select_related("run", "agent", "workspace")
        request = as_asked(action.get(pk=approval.action_id or 0), explain=True)
        with transaction.atomic():
            return decided(request).judgement
    except (InvalidInput, Refused, PolicyUnreadable):
        return None


def _in_vain(approval: Approval) -> str:
    if approval.subject_kind == SubjectKind.PLAN:
        return "After a yes it stops before its first call that is not allowed."
    return "After a yes the agent is told no all the same when it comes for the call."


def _meanwhile(approval: Approval) -> str:
    if approval.subject_kind == SubjectKind.PLAN:
        return ""
    return " If the agent begins the call anew meanwhile, it goes on without people."
