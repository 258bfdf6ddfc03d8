"""Cases: what people do with one. Claim, release, comment, report, reopen; `closing` closes.

Every change posts the revision that the person saw. A claim is a lease that others see: it ends by
itself after a quarter of an hour in which its holder did nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from amends.protocol.masking import masked
from amends.protocol.vocabulary import EventType
from connectors import channels
from connectors.channels import Message
from ledger.models import Event, Run
from recovery.cases.lifecycle import (
    REOPENED,
    OutOfDate,
    held_by_another,
    holder_of,
    locked,
    move,
    record,
    refuse_if_claimed,
)
from recovery.models import Case, CaseState, Comment, Report, ReportSource
from recovery.planning.drafting import connections_of
from recovery.run_facts.runs import facts_of
from recovery.triage import case_projection, triage
from recovery.triage.detectors import reasons
from workspaces import access, locks
from workspaces.clock import database_time
from workspaces.free_text import kept_text
from workspaces.models import User
from workspaces.moves import CannotMove

CLAIM_SECONDS = 15 * 60
HANDED_SECONDS = 8 * 3600
SNOOZE_HOURS_MAX = 7 * 24
TEXT_CHARACTERS_MAX = 8_000
PART_OF_SOURCE: dict[str, str] = {ReportSource.END_USER: "trail", ReportSource.AGENT: "agent"}
"""Which part of the desk writes for those who have no account in it."""


@transaction.atomic
def claim(case: Case, *, by: User, seen: int) -> Case:
    """Take the case in hand; raises CannotMove where somebody else has it, OutOfDate."""
    case = locked(case, seen=seen)
    if case.state == CaseState.CLOSED:
        raise CannotMove(case, "claimed", "The case is closed.")
    holder, other = holder_of(case), held_by_another(case, by)
    if other is not None:
        raise CannotMove(case, "claimed", f"{other} has claimed it already.")
    mine = case.claimed_until if holder == by else None  # what was handed over is theirs for longer
    case.claimed_by, case.claimed_until = by, max(filter(None, (mine, _until())))
    case.save(update_fields=["claimed_by", "claimed_until"])
    if holder != by:
        record(case, EventType.CASE_CLAIMED, by=by)
    return case


@transaction.atomic
def release(case: Case, *, by: User, seen: int) -> Case:
    """Give the case back; only its holder can. Releasing what is free changes nothing."""
    case = locked(case, seen=seen)
    refuse_if_claimed(case, by, "released")
    if case.claimed_by_id is not None:
        case.claimed_by, case.claimed_until = None, None
        case.save(update_fields=["claimed_by", "claimed_until"])
        record(case, EventType.CASE_RELEASED, by=by)
    return case


@transaction.atomic
def hand_over(case: Case, *, to: User, note: str, by: User, seen: int) -> Case:
    """Put the case into somebody's hands, with a note; from then on it is theirs as if they had
    claimed it, for a working day; once more as it was, it is theirs already. Raises CannotMove,
    OutOfDate or InvalidInput.
    """
    case, text = locked(case, seen=seen), plain(note)
    said = f"For {to}: {text}"
    if case.state == CaseState.CLOSED:
        raise CannotMove(case, "handed over", "The case is closed.")
    if held_by_another(case, by) == to and case.comments.filter(person=by, text=said).exists():
        return case
    refuse_if_claimed(case, by, "handed over")
    if not access.may(to, "recover", case.workspace):
        raise CannotMove(case, "handed over", f"{to} may not recover here.")
    case.claimed_by = to
    case.claimed_until = database_time() + timedelta(seconds=HANDED_SECONDS)
    case.snoozed_until = None
    case.save(update_fields=["claimed_by", "claimed_until", "snoozed_until"])
    Comment.objects.create(case=case, person=by, text=said)
    data = {"to": to.pk, "text": text}
    record(case, EventType.CASE_HANDED_OVER, by=by, data=data)
    if to != by:
        message = Message(
            title=f"{by} handed you a case",
            text="It is yours for a working day. The note stands on its page.",
            url=f"{settings.AMENDS_URL}/w/{case.workspace.slug}/cases/{case.pk}/?tab=activity",
        )
        key = f"case/{case.pk}/handed/{case.claimed_until.timestamp():.0f}"
        channels.write_to(case.workspace, to.email, EventType.CASE_HANDED_OVER, message, key=key)
    return case


@transaction.atomic
def snooze(case: Case, *, hours: int, note: str, by: User, seen: int) -> Case:
    """Take the case out of the list of open ones for so long, or bring it back with no hours.

    Never past what is due: whoever snoozes cannot let an undo window close unseen. It is over
    as soon as the case is reported, handed over or reopened, and where triage finds it worse than
    it was (`lifecycle.woken`). Raises CannotMove, OutOfDate or InvalidInput.
    """
    case = locked(case, seen=seen)
    if case.state == CaseState.CLOSED:
        raise CannotMove(case, "snoozed", "The case is closed.")
    refuse_if_claimed(case, by, "snoozed")
    if not 0 <= hours <= SNOOZE_HOURS_MAX:
        raise CannotMove(case, "snoozed", f"At most {SNOOZE_HOURS_MAX} hours.")
    until = database_time() + timedelta(hours=hours) if hours else None
    if until is not None and case.due_at is not None and case.due_at < until:
        raise CannotMove(case, "snoozed", "It is due before that, so it cannot sleep so long.")
    text = plain(note) if hours else ""
    case.snoozed_until = until
    case.save(update_fields=["snoozed_until"])
    data = {"until": until.isoformat() if until else None, "text": text}
    record(case, EventType.CASE_SNOOZED, by=by, data=data)
    return case


def touch(case: Case, *, by: User) -> None:
    """Whoever holds the claim is busy with it: the lease starts anew, and never ends earlier."""
    until = _until()
    mine = Case.objects.filter(pk=case.pk, claimed_by=by, claimed_until__gt=database_time())
    mine.filter(claimed_until__lt=until).update(claimed_until=until)


def let_idle_claims_go() -> int:
    """Clear leases that are over, and those of people who may not recover any more, so that a list
    by claimant says who works on what.
    """
    held = Case.objects.exclude(claimed_by=None)
    may_act = User.objects.filter(
        pk=OuterRef("claimed_by"),
        is_active=True,
        groups__workspacegrouppermission__content_object=OuterRef("workspace"),
        groups__workspacegrouppermission__permission__codename="recover",
        groups__workspacegrouppermission__permission__content_type__app_label="workspaces",
    )
    over = held.filter(Q(claimed_until__lt=database_time()) | ~Exists(may_act))
    return over.update(claimed_by=None, claimed_until=None)


@transaction.atomic
def comment(case: Case, *, by: User, text: str) -> Comment:
    """Add a comment. It changes nothing that anybody saw, so it needs no revision."""
    written = Comment.objects.create(case=case, person=by, text=plain(text))
    touch(case, by=by)
    record(
        case, EventType.CASE_COMMENTED, by=by, data={"comment": written.pk, "text": written.text}
    )
    return written


@transaction.atomic
def report(
    run: Run, *, text: str, by: User | None = None, source: str = ReportSource.OPERATOR
) -> Case:
    """Say that a run, an agent's or the desk's own, did wrong: its case opens, or learns of it."""
    text = plain(text)
    run = locks.locked(Run.objects.all()).select_related("workspace", "agent").get(pk=run.pk)
    case = locks.locked(Case.objects.filter(run=run)).first()
    if case is None:
        facts = facts_of(run)
        found = reasons(facts, None)
        file = case_projection.case_file(facts, found, connections_of([run.workspace_id]), None)
        case = triage.keep(facts, None, found, file)
    elif case.snoozed_until is not None:  # whoever put it off did not know of this
        case.snoozed_until = None
        case.save(update_fields=["snoozed_until"])
    written = Report.objects.create(case=case, source=source, person=by, text=text)
    record(
        case,
        EventType.CASE_REPORTED,
        by=by,
        data={"report": written.pk, "source": source, "text": text},
        part=PART_OF_SOURCE.get(source, "desk"),
    )
    triage.look([run.pk])
    case.refresh_from_db()
    return case


@transaction.atomic
def reopen(case: Case, *, by: User, seen: int, reason: str) -> Case:
    """Bring a closed case back into the queue; once more as it was, it is back already."""
    case, reason = locked(case), plain(reason)
    said = {"reason": reason, "revision": seen}
    if case.revision != seen:
        told = Event.objects.filter(
            workspace=case.workspace_id, run=case.run.run, type=EventType.CASE_REOPENED,
            actor_kind="person", actor=str(by.pk), data__contains=said,
        )  # fmt: skip
        if case.state != CaseState.CLOSED and told.exists():
            return case
        raise OutOfDate(case)
    if case.state != CaseState.CLOSED:
        raise CannotMove(case, CaseState.OPEN, "The case is open already.")
    Report.objects.create(case=case, source=ReportSource.OPERATOR, person=by, text=reason)
    move(case, CaseState.OPEN, reopened_at=database_time(), **REOPENED)
    record(case, EventType.CASE_REOPENED, by=by, data=said)
    triage.look([case.run_id])
    case.refresh_from_db()
    return case


def _until() -> datetime:
    return database_time() + timedelta(seconds=CLAIM_SECONDS)


def plain(text: str) -> str:
    """What somebody wrote, without secrets; raises InvalidInput."""
    return str(masked(kept_text(text, TEXT_CHARACTERS_MAX, asking="A few words are needed.")))
