"""Contesting: the affected person says that a correction is wrong, and somebody else answers. On
the ways on which the correction went they hear that the answer is there.

Whoever decided what was done, or what was told, does not answer. The clock runs from the moment it
is sent, and the person keeps a receipt. Its case comes back to the queue all the same: what is said
may need another repair.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet, Value
from django.db.models.functions import Greatest, Now
from django.utils import translation
from django.utils.translation import gettext as _

from amends.protocol.vocabulary import EventType
from approvals.models import Decision
from connectors import channels
from connectors.channels import Message
from connectors.models import DeliveryState
from ledger.models import Event
from recovery.cases.lifecycle import NotPossible, record
from recovery.casework import cases
from recovery.corrections import drafting, publishing, wording
from recovery.models import Contest, ContestGround, Correction, CorrectionState, Plan, ReportSource
from recovery.run_facts.sentences import listed
from recovery.triage import triage
from workspaces import clock, formatting
from workspaces.access import people_with
from workspaces.clock import database_time
from workspaces.free_text import InvalidInput, kept_text
from workspaces.models import User
from workspaces.moves import CannotMove
from workspaces.pages import is_number
from workspaces.periodic import each

TEXT_CHARACTERS_MAX = 4_000
NAMED_MAX = 3
CONTESTS_MAX = 5
"""By one link: more of them tell an operator nothing new, and a link can be shared."""

ANSWER_READ_DAYS = 30
"""So long at least the link opens the answer: from when it is due, and from when it is given."""

REMINDERS = 50
REMINDED_MAX = 10
"""People who are told of one answer that is due."""
NOBODY = "What the person wrote is erased: there is nobody to answer."
ANSWER = "answer"
"""On the ways of a correction: not itself, but that its contest is answered."""


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
        revision=F("revision") + 1,
        expires_at=_readable_from(kept.due_at),
    )
    return kept


def _readable_from(moment: datetime) -> Greatest:
    """When the link ends, so that it opens the answer that is there from this moment on."""
    return Greatest("expires_at", Value(moment + timedelta(days=ANSWER_READ_DAYS)))


def _took_part(one: Contest) -> dict[str, set[int | None]]:
    """Who did what of that which is contested."""
    return {
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


def _may_answer(one: Contest) -> QuerySet[User]:
    parted = {pk for people in _took_part(one).values() for pk in people if pk is not None}
    return people_with("recover", one.correction.workspace).exclude(pk__in=parted)


def why_not_by(one: Contest, person: User) -> str:
    """Why this person may not answer, and who may; empty where they may."""
    if not one.correction.token_digest:
        return NOBODY
    part = next((part for part, people in _took_part(one).items() if person.pk in people), "")
    if not part:
        return ""
    named = listed([str(other) for other in _may_answer(one).order_by("name")[:NAMED_MAX]])
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
def answer(one: Contest, *, by: User, upheld: bool | None, text: str) -> Contest:
    """Say what becomes of it, with reasons; raises DecidedBefore, CannotMove where somebody was
    faster, or InvalidInput, as of a verdict that is lacking (None).
    """
    correction = drafting.lock(one.correction)
    one = Contest.objects.select_related("correction__case__run", "correction__workspace").get(
        pk=one.pk
    )
    if one.answered_at is not None:
        raise CannotMove(one, "answered", "Somebody has answered it meanwhile.")
    if hindrance := why_not_by(one, by):
        raise DecidedBefore(hindrance)
    if upheld is None:
        raise InvalidInput("Say what becomes of it: the person is right, or it stays as it is.")
    text = kept_text(text, TEXT_CHARACTERS_MAX, asking="Give the reasons, please.")
    Contest.objects.filter(pk=one.pk).update(
        answered_at=Now(), answered_by=by, upheld=upheld, answer=text
    )
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
    _tell(correction, one)
    triage.look([one.correction.case.run_id])  # whose next step is another one now
    return one


def told_by(correction: Correction) -> set[str]:
    """On which ways the person hears that there is an answer: those on which their correction went,
    as long as something goes out on them, and its link opens it.
    """
    if not publishing.is_readable(correction) or not publishing.link_of(correction):
        return set()
    went = correction.deliveries.exclude(state=DeliveryState.FAILED)
    ways = set(went.values_list("channel", flat=True)) & {publishing.MAIL, publishing.WEBHOOK}
    return {
        way for way in ways if not publishing.why_not_by(correction, [way], publishing.ANSWERED)
    }


def _tell(correction: Correction, one: Contest) -> None:
    """That it is there, and where, in their language, or in each where it is not known; what it
    says stands on that page alone.
    """
    ways = told_by(correction)
    titles, texts = [], []
    for language in [correction.language] if correction.language else dict(settings.LANGUAGES):
        with translation.override(language):
            titles.append(_("We have answered you"))
            looked = _("Somebody who took no part in what was decided has looked at it.")
            texts.append(f"{looked}\n{_('Your receipt')} {one.receipt}")
    message = Message(
        title=" · ".join(titles),
        text="\n\n".join([*texts, correction.workspace.name]),
        url=f"{publishing.link_of(correction)}contested/{one.receipt}/",
        facts=publishing.facts_of(correction) | {"receipt": one.receipt},
    )
    key, to = f"correction/{correction.reference}/{one.receipt}", {}
    if publishing.MAIL in ways:
        to[f"{key}/mail"] = correction.contact
        channels.write_to_each(correction.workspace, to, publishing.ANSWERED, message)
    if publishing.WEBHOOK in ways:
        for channel in publishing.webhooks(correction, publishing.ANSWERED):
            channels.tell(channel, publishing.ANSWERED, message, key=key)
            to[f"{key}/{channel.pk}"] = channel.name
    for name, address in to.items():
        publishing.note(correction, ANSWER, address=address, message_key=name)


def remind() -> int:
    """Tell by mail, once, of contests whose answer is due within a day, who may answer them, or
    else administers; how many.
    """
    soon = clock.now() + timedelta(days=1)
    waiting = Contest.objects.waiting().filter(reminded_at=None, due_at__lte=soon)
    related = ("correction__case__run", "correction__case__workspace", "correction__workspace")
    found = waiting.select_related(*related).order_by("due_at", "pk")[:REMINDERS]
    return each(found, _remind)


@transaction.atomic
def _remind(one: Contest) -> bool:
    unanswered = Contest.objects.filter(pk=one.pk, answered_at=None, reminded_at=None)
    if not unanswered.update(reminded_at=Now()):
        return False
    correction, here = one.correction, one.correction.workspace
    people = _may_answer(one) or people_with("administer", here)
    message = Message(
        title="An affected person waits for an answer",
        text=f"{one.receipt} contests {correction.reference}. Its person was told that they have an"
        f" answer by {formatting.absolute(one.due_at, UTC)}.",
        url=f"{settings.AMENDS_URL}/w/{here.slug}/corrections/{correction.pk}/",
    )
    key = f"contest/{one.receipt}"
    mails = {f"{key}/{who.pk}": who.email for who in people.order_by("pk")[:REMINDED_MAX]}
    channels.write_to_each(here, mails, EventType.CORRECTION_CONTESTED, message)
    return True
