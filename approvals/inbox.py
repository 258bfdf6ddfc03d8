"""The inbox: people's answers, each one act under a lock on its approval.

What a person saw is bound to what they decide: the digest that the page showed is posted back.
"""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.db.models.functions import Now
from prometheus_client import Counter, Histogram

from amends.protocol.vocabulary import EventType
from approvals import consent_requests, deciders, notifications, pauses, plan_sums, signatures
from approvals.deciders import locked
from approvals.digests import drafted, events_of, record, record_all
from approvals.models import APPROVAL_MOVES, Approval, ApprovalState, Decision
from approvals.policy import PolicyUnreadable
from approvals.signals import publish_on_commit
from edge import tracing
from ledger.desk_events import EventDraft
from workspaces import access, clock, delegations, formatting, independence
from workspaces.free_text import REASON_CHARACTERS_MAX, kept_text
from workspaces.fresh_login import is_fresh
from workspaces.models import Delegation, Team, User
from workspaces.moves import CannotMove, move

# What Prometheus counts of people's answers, in the process where they are given.

# From a click without reading to a day.
BUCKETS = (2, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)

answers = Counter(
    "amends_approval_answers", "Answers that people gave to approvals.", ["answer", "risk"]
)
decide_seconds = Histogram(
    "amends_approval_decide_seconds",
    "From asking people to their last answer.",
    ["end"],
    buckets=BUCKETS,
)

WITHOUT_REASON = "Say why, so that whoever asked can learn."
UNREADABLE = "the policy in force cannot be read; somebody has to mend it first"
ERASED = "what it was about is erased"
SHOWN_SECONDS_MAX = 24 * 3600

REASONS = (
    "It is the wrong target.",
    "The amount is wrong.",
    "It was done already.",
    "It is not needed.",
    "Ask again with the reason for it.",
    "Our rules do not allow it.",
)
"""What people say no with, offered beside their own words; it reaches whoever asked as it is."""


GIVEN = "What is yours to give is already given; others are asked."


class OutOfDate(Exception):
    """We stopped because the page showed something else than what stands now; show it anew."""


class NeedsFreshLogin(Exception):
    """We stopped because this wants a log-in under five minutes old; send them to log in again."""

    def __init__(self) -> None:
        super().__init__("log in again: this needs a log-in under five minutes old")


class NotEntitled(CannotMove):
    """We stopped because this person's answer does not count here; the message says why."""


@transaction.atomic
def grant(
    approval: Approval,
    *,
    by: User,
    seen: str,
    reason: str = "",
    shown: Mapping[str, Any] | None = None,
    shown_seconds: float | None = None,
    login_at: datetime | None = None,
    signed: Any = None,
) -> Approval:
    """Say yes. Raises OutOfDate, NotEntitled, NeedsFreshLogin, NotSigned, CannotMove where it is
    over, or InvalidInput for a reason that is too long.

    `seen` is the digest that the page showed, `login_at` when the person last proved who they are,
    `signed` what the browser gives of their key (the JSON of a `PublicKeyCredential`).
    """
    began = time.time()
    reason = kept_text(reason, REASON_CHARACTERS_MAX)
    approval = as_shown(approval, seen)
    standing, mandate = _with_yes(approval, by)
    check_fresh(approval, by, login_at)
    signature = signatures.sign(approval, by=by, answer=signed) if approval.signed else None
    decision = decide(
        approval,
        by,
        granted=True,
        seen=seen,
        reason=reason,
        shown=shown,
        shown_seconds=shown_seconds,
        login_at=login_at,
        signature=signature,
        delegation=mandate.delegation,
    )
    approval.refresh_from_db(fields=["decisions"])  # there is one more
    _seat(approval, standing)
    said = drafted(
        approval,
        EventType.APPROVAL_GRANTED,
        reason=decision.reason,
        complete=standing.complete,
        fills=str(standing.requirements[standing.filled[by.pk]].team or ""),
        **_in_right_of(decision),
        **({"signature": signature} if signature else {}),
    )
    if standing.complete:
        complete(approval, by, said)
    else:
        record_all(approval, [said], by=by)
    count(approval, "yes", began)
    return approval


def _with_yes(approval: Approval, by: User) -> tuple[deciders.ApprovalProgress, deciders.Mandate]:
    """How far the approval is with this yes, and in whose right it is given. Raises NotEntitled
    where it does not count.
    """
    found = deciders.with_yes(approval, by.pk)
    if found is None:
        may_answer(approval, by)
        raise NotEntitled(approval, ApprovalState.GRANTED, "what is yours to give is already given")
    if why := held(approval):
        raise NotEntitled(approval, ApprovalState.GRANTED, why)
    return found


def held(approval: Approval) -> str:
    """Why nobody may say yes just now, in words; empty where people may."""
    return pauses.of_the_desk(approval.workspace_id) or consent_requests.lacking(approval)


def _seat(approval: Approval, standing: deciders.ApprovalProgress) -> None:
    """Write which decision fills which requirement; an earlier one may have changed places."""
    for person, place in standing.filled.items():
        approval.decisions.filter(person_id=person).exclude(
            requirement=standing.requirements[place]
        ).update(requirement=standing.requirements[place])


def complete_again(approval: Approval) -> bool:
    """Grant a locked question for which what people have said is enough, since one of them is back
    in the team: each has answered, so that nobody else's yes would bring it further.
    """
    is_open = Approval.objects.open().filter(pk=approval.pk).exists() and approval.calls
    standing = deciders.progress(approval)
    if not is_open or not standing.complete or held(approval):
        return False
    _seat(approval, standing)
    complete(approval, None)
    return True


def complete(approval: Approval, by: User | None, *said: EventDraft) -> None:
    """The last yes that was needed, given in time: whoever waits may go on. `by` is None where it
    was given before, and counts again. What is `said` goes into the ledger with it, and before it.
    """
    unexpired = Q(expires_at__gt=Now())
    move(approval, ApprovalState.GRANTED, moves=APPROVAL_MOVES, where=unexpired, decided_at=Now())
    try:
        plan_sums.hold_approved(approval)
    except PolicyUnreadable as wrong:
        raise NotEntitled(approval, ApprovalState.GRANTED, UNREADABLE) from wrong
    if told := [*said, *_action_approved(approval)]:
        record_all(approval, told, by=by)
    notifications.ended(approval)
    publish_on_commit(approval.pk, approval.subject_kind)


@transaction.atomic
def reject(
    approval: Approval,
    *,
    by: User,
    seen: str,
    reason: str,
    shown: Mapping[str, Any] | None = None,
    shown_seconds: float | None = None,
) -> Approval:
    """Say no; one no ends it. The reason reaches whoever asked; InvalidInput without one."""
    began = time.time()
    reason = kept_text(reason, REASON_CHARACTERS_MAX, asking=WITHOUT_REASON)
    approval = as_shown(approval, seen)
    mandate = may_answer(approval, by)
    decision = decide(
        approval,
        by,
        granted=False,
        seen=seen,
        reason=reason,
        shown=shown,
        shown_seconds=shown_seconds,
        delegation=mandate.delegation,
    )
    said = _in_right_of(decision)
    _end(approval, ApprovalState.REJECTED, EventType.APPROVAL_REJECTED, by, decision.reason, **said)
    count(approval, "no", began)
    return approval


@transaction.atomic
def withdraw(approval: Approval, *, by: User, reason: str) -> Approval:
    """Take the question or an unused grant back: the requester, or anybody who may decide on it;
    once more as it was, it is back already.
    """
    reason = kept_text(reason, REASON_CHARACTERS_MAX)
    approval = locked(approval)
    taken = (approval.state, approval.closed_by_id, approval.closing_reason)
    if taken == (ApprovalState.WITHDRAWN, by.pk, reason):
        return approval
    if not may_withdraw(approval, by):
        raise NotEntitled(
            approval, ApprovalState.WITHDRAWN, "only who asked or may decide withdraws"
        )
    _end(approval, ApprovalState.WITHDRAWN, EventType.APPROVAL_WITHDRAWN, by, reason)
    return approval


def as_shown(approval: Approval, seen: str) -> Approval:
    """The approval as it stands, locked, if it can still be answered and is what was shown. Raises
    OutOfDate, or CannotMove where it is over.
    """
    fresh = locked(approval)
    if fresh.state != ApprovalState.WAITING:
        raise CannotMove(fresh, "answered", f"it is already {fresh.get_state_display().lower()}")
    if fresh.expires_at <= clock.database_time():
        raise CannotMove(fresh, "answered", "it has expired, and an expired one is not granted")
    if not fresh.calls:
        raise CannotMove(fresh, "answered", ERASED)
    if seen != fresh.digest:
        raise OutOfDate("what was shown is not what would run now")
    return fresh


def is_given(
    approval: Approval,
    by: User,
    *,
    granted: bool,
    seen: str,
    reason: str = "",
    until: datetime | None = None,
    break_glass: bool = False,
) -> bool:
    """Whether this person has given this very answer before, a yes not before `until` where that
    was said (where somebody named a later moment, that one counts). What comes once more, as by a
    proxy that heard no answer or by a second click, is that one, and not refused as another.
    """
    if seen != approval.digest:
        return False
    rows = Decision.objects.filter(approval=approval, person=by, granted=granted, seen_digest=seen)
    rows = rows.filter(break_glass=break_glass, reason=kept_text(reason, len(reason)))
    if granted and not break_glass and not _is_of_moment(approval, by, until):
        return False
    return rows.exists()


def _is_of_moment(approval: Approval, by: User, until: datetime | None) -> bool:
    """Whether this person's yes was for that moment, or for at once where that is None."""
    latest = None
    told_later = events_of(approval, EventType.APPROVAL_PUT_OFF).order_by("place")
    for told in told_later if approval.action else ():  # a plan is not put off
        earlier, latest = latest, datetime.fromisoformat(str((told.data or {})["until"]))
        if told.actor == str(by.pk):
            return until is not None and (until == latest or until <= latest == earlier)
    return until is None


def may_withdraw(approval: Approval, by: User) -> bool:
    """Whoever asked, whoever may decide, and whoever did decide and still may."""
    if approval.requested_by_id == by.pk and access.may(by, "view", approval.workspace):
        return True
    if by.pk in deciders.entitled(approval, [by.pk]):
        return True
    decided = approval.decisions.filter(person=by).exists()
    return decided and access.may(by, "approve", approval.workspace)


def why_not(approval: Approval, person: User) -> str:
    """Why this person cannot answer now, in words; empty if they can."""
    if approval.state != ApprovalState.WAITING or approval.expires_at <= clock.database_time():
        return "It is no longer open."
    if not approval.calls:
        return f"You cannot answer: {ERASED}."
    if deciders.counts(approval, person):
        return ""
    try:
        may_answer(approval, person)
    except NotEntitled as not_yours:
        return f"You cannot answer: {not_yours}."
    return GIVEN


def may_answer(approval: Approval, by: User) -> deciders.Mandate:
    """In whose right this person answers, as it stood at one look: a moment later they may have
    left. Raises NotEntitled, with the reason in words, where their answer does not count.
    """
    if approval.decisions.filter(person=by).exists():
        raise NotEntitled(approval, "answered", "you have already answered")
    if held_now := deciders.mandates(approval, [by.pk]):
        return held_now[0]
    lent = approval.decisions.filter(principal=by).select_related("person").first()
    if lent is not None:
        why = f"{lent.person} has answered in your right"
    elif by.pk in deciders.entitled(approval, [by.pk]):
        why = "whoever handed you their right has answered"
    elif by.pk in approval.askers:
        why = "whoever asked, and the agent’s owner, do not count: it takes a second person"
    elif not delegations.may_decide(by, approval.workspace):
        why = "it needs the permission “approve”"
    elif not independence.is_proven(by):
        why = independence.UNPROVEN
    elif new := next((one for one in deciders.newcomers(approval) if one.person == by), None):
        why = (
            f"{new.person} {new.brought_in_by}, so it takes somebody else until "
            f"{formatting.absolute(new.counts_at)}"
        )
    else:
        why = "this asks teams in which you do not stand"
    raise NotEntitled(approval, "answered", why)


def needs_fresh(approval: Approval, person: User) -> bool:
    """Critical ones, and a person's own where the rule allows it, need a fresh log-in."""
    return approval.fresh_login or person.pk in approval.askers


def check_fresh(approval: Approval, by: User, login_at: datetime | None) -> None:
    if needs_fresh(approval, by) and not is_fresh(login_at):
        raise NeedsFreshLogin


def decide(
    approval: Approval,
    by: User,
    *,
    granted: bool,
    seen: str,
    reason: str,
    shown: Mapping[str, Any] | None,
    shown_seconds: float | None,
    login_at: datetime | None = None,
    signature: Mapping[str, str] | None = None,
    delegation: Delegation | None = None,
    break_glass: bool = False,
) -> Decision:
    """Write down an answer that was found to count. Raises NotEntitled where whose right it is has
    ended meanwhile.
    """
    whose = delegation.delegator if delegation else by
    teams = Team.objects.filter(workspace=approval.workspace, group__user=whose)
    seconds = None if shown_seconds is None else min(max(shown_seconds, 0.0), SHOWN_SECONDS_MAX)
    try:
        with transaction.atomic(savepoint=delegation is not None):
            return Decision.objects.create(
                approval=approval,
                person=by,
                granted=granted,
                reason=reason,
                seen_digest=seen,
                shown=dict(shown) if shown else None,
                shown_seconds=seconds,
                fresh_login_at=login_at,
                signature=dict(signature) if signature else None,
                delegation=delegation,
                break_glass=break_glass,
                principal=delegation.delegator if delegation else None,
                teams=sorted(teams.values_list("name", flat=True)),
            )
    except IntegrityError:
        if delegation is None:
            raise
        raise NotEntitled(approval, "answered", f"{by} decides for {whose} no more") from None


def _in_right_of(decision: Decision) -> dict[str, Any]:
    """For the ledger: whose right it is, where it is somebody else's."""
    if decision.delegation is None:
        return {}
    return {
        "delegation": decision.delegation.pk,
        "in_right_of": str(decision.delegation.delegator.pk),
    }


def _end(
    approval: Approval, state: ApprovalState, event: EventType, by: User, reason: str, **said: Any
) -> None:
    move(
        approval,
        state,
        moves=APPROVAL_MOVES,
        decided_at=Now(),
        closing_reason=reason,
        closed_by=by,
    )
    record(approval, event, by=by, reason=reason, **said)
    notifications.ended(approval)
    publish_on_commit(approval.pk, approval.subject_kind)


def count(approval: Approval, answer: str, began: float) -> None:
    """For /metrics and traces, once the answer is through; it began then, by `time.time()`."""
    end, took = str(approval.state), (clock.now() - approval.asked_at).total_seconds()

    def tell() -> None:
        answers.labels(answer, approval.risk).inc()
        if end != ApprovalState.WAITING:
            decide_seconds.labels(end).observe(took)
        workspace, action = approval.workspace.slug, approval.action
        call = {"run": approval.run_ref, "action": action.action} if action else {}
        tracing.record(
            "decision", began, workspace=workspace, approval=approval.pk, answer=answer, state=end,
            **call,
        )  # fmt: skip

    transaction.on_commit(tell, robust=True)


def _action_approved(approval: Approval) -> list[EventDraft]:
    if approval.action is None:
        return []
    granted = approval.decisions.filter(granted=True).select_related("person", "principal")
    people = [one.who for one in granted.order_by("pk")]
    return [drafted(approval, EventType.ACTION_APPROVED, people=people)]
