"""Contesting: the affected person says that a correction is wrong, and somebody else answers.

Whoever decided what was done, or what was told, does not answer. The clock runs from the moment it
is sent, and the person keeps a receipt. Its case comes back to the queue all the same: what is said
may need another repair.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Value
from django.db.models.functions import Greatest, Now
from django.utils.translation import gettext as _

from amends.protocol.vocabulary import EventType
from approvals.models import Decision
from ledger.models import Event
from recovery.cases.lifecycle import NotPossible, record
from recovery.casework import cases
from recovery.corrections import drafting, wording
from recovery.models import Contest, ContestGround, Correction, CorrectionState, Plan, ReportSource
from recovery.run_facts.sentences import listed
from workspaces.access import people_with
from workspaces.clock import database_time
from workspaces.free_text import kept_text
from workspaces.models import User
from workspaces.moves import CannotMove
from workspaces.pages import is_number

TEXT_CHARACTERS_MAX = 4_000
NAMED_MAX = 3
CONTESTS_MAX = 5
"""By one link: more of them tell an operator nothing new, and a link can be shared."""

ANSWER_READ_DAYS = 30
"""So long at least the link opens the answer: from when it is due, and from when it is given."""


class TooManyReports(Exception):
    """We stopped because this correction was contested often enough: a person is looking at it."""


class LinkGone(Exception):
    """We stopped because the letter was withdrawn or erased while the person wrote."""


class DecidedBefore(NotPossible):
    """We stopped because whoever would answer took part in what is contested; another one may."""


@transaction.atomic
def contest(correction: Correction, *, ground: str, text: str) -> Contest:
    """Keep what the person says, start the clock and bring the case back; raises LinkGone,
    TooManyReports or InvalidInput. What is sent again as it waits for its answer, as by a second
    click, is what was kept the first time.
    """
    link = correction.token_digest
    correction = drafting.lock(correction)
    if (correction.state, correction.token_digest) != (CorrectionState.PUBLISHED, link):
        raise LinkGone
    text = kept_text(text, TEXT_CHARACTERS_MAX, asking=_("Write a few words, please."))
    known = ground if ground in ContestGround.values else ContestGround.OTHER
    waiting = correction.contests.filter(ground=known, text=text, answered_at=None).first()
    if waiting is not None:
        return waiting
    if correction.contests.count() >= CONTESTS_MAX:
        raise TooManyReports
    cases.report(correction.case.run, text=text, source=ReportSource.END_USER)
    now = database_time()
    kept = Contest.objects.create(
        correction=correction,
        receipt=drafting.reference("CT"),
        ground=known,
        text=text,
        at=now,
        due_at=now + timedelta(days=wording.settings_of(correction.workspace).answer_days),
    )
    data = {
        "correction": correction.reference,
        "receipt": kept.receipt,
        "ground": str(kept.ground),
        "due_at": kept.due_at.isoformat(),
    }
    record(correction.case, EventType.CORRECTION_CONTESTED, data=data, part="end_user")
    Correction.objects.filter(pk=correction.pk).update(
        still_wrong_at=now,
        still_wrong_text=text,
        revision=F("revision") + 1,
        expires_at=_readable_from(kept.due_at),
    )
    return kept


def _readable_from(moment: datetime) -> Greatest:
    """When the link ends, so that it opens the answer that is there from this moment on."""
    return Greatest("expires_at", Value(moment + timedelta(days=ANSWER_READ_DAYS)))


def why_not_by(one: Contest, person: User) -> str:
    """Why this person may not answer, and who may; empty where they may."""
    took_part: dict[str, set[int | None]] = {
        "published it": {one.correction.published_by_id},
        "closed its case": {one.correction.case.closed_by_id, *_closed_before(one)},
        "had its plan run": set(
            Plan.objects.filter(case=one.correction.case, submitted_at__isnull=False).values_list(
                "drafted_by_id", flat=True
            )
        ),
        "decided on its plan": set(
            Decision.objects.filter(
                approval__workspace=one.correction.workspace_id,
                approval__plan_id__in=one.correction.case.plans.values("pk"),
            ).values_list("person_id", flat=True)
        ),
    }
    part = next((part for part, people in took_part.items() if person.pk in people), "")
    if not part:
        return ""
    parted = [pk for people in took_part.values() for pk in people if pk is not None]
    others = people_with("recover", one.correction.workspace).exclude(pk__in=parted)
    named = listed([str(other) for other in others.order_by("name")[:NAMED_MAX]])
    end = f", such as {named}." if named else ": nobody else here may recover."
    return f"You {part}: somebody who took no part in it answers{end}"


def _closed_before(one: Contest) -> set[int]:
    """Who had closed its case when it was contested, which opened it again: by the ledger."""
    case = one.correction.case
    ended = Event.objects.filter(
        workspace=case.workspace_id,
        run=case.run.run,
        type=EventType.CASE_CLOSED,
        actor_kind="person",
        received_at__lte=one.at,
    )
    return {int(actor) for actor in ended.values_list("actor", flat=True) if is_number(actor)}


@transaction.atomic
def answer(one: Contest, *, by: User, upheld: bool, text: str) -> Contest:
    """Say what becomes of it, with reasons; raises DecidedBefore, InvalidInput, or CannotMove where
    somebody was faster.
    """
    text = kept_text(text, TEXT_CHARACTERS_MAX, asking="Give the reasons, please.")
    drafting.lock(one.correction)
    if hindrance := why_not_by(one, by):
        raise DecidedBefore(hindrance)
    unanswered = Contest.objects.filter(pk=one.pk, answered_at=None)
    if not unanswered.update(answered_at=Now(), answered_by=by, upheld=upheld, answer=text):
        raise CannotMove(one, "answered", "Somebody has answered it meanwhile.")
    living = Correction.objects.filter(
        pk=one.correction_id, state=CorrectionState.PUBLISHED, expires_at__gt=Now()
    )
    living.update(expires_at=_readable_from(database_time()))
    one.refresh_from_db()
    data = {
        "correction": one.correction.reference,
        "receipt": one.receipt,
        "upheld": upheld,
        "answer": text,
    }
    record(one.correction.case, EventType.CORRECTION_ANSWERED, by=by, data=data)
    return one
