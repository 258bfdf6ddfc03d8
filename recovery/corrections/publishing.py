"""Publishing: the correction gets its link and its entry in the log, and is sent on its way."""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce, Now
from django.utils import translation

from amends.protocol.vocabulary import EventType
from approvals import pauses, policy
from connectors import channels
from connectors.channels import Message
from connectors.models import Channel, ChannelKind, Delivery, DeliveryState
from ledger.canonical import canonical_of
from recovery.cases.lifecycle import REFUSALS, NotPossible, record
from recovery.casework import settling
from recovery.corrections import drafting
from recovery.corrections.drafting import lock
from recovery.corrections.wording import DAYS, sentence, settings_of
from recovery.engine.plan_lifecycle import cases_behind
from recovery.models import (
    Case,
    CaseOutcome,
    CaseState,
    Correction,
    CorrectionDelivery,
    CorrectionState,
    Plan,
    PlanState,
    Step,
    StepState,
)
from recovery.models.cases import TOLD, UNDER_A_PLAN
from recovery.models.plans import LIVING, UNDER_WAY
from workspaces.clock import Clock, database_time
from workspaces.free_text import REASON_CHARACTERS_MAX, kept_text
from workspaces.keys import (
    LINK_TOKEN_CHARACTERS_MAX,
    link_digest,
    new_link_token,
    shown_token,
)
from workspaces.models import User
from workspaces.moves import CannotMove
from workspaces.pages import offer_of_languages
from workspaces.periodic import Turns, each

logger = logging.getLogger(__name__)


# Links: the public address of a correction, known by its digest only.
#
# Whoever has the link can read the correction until it expires or is revoked; a wrong, an expired
# and a revoked one look the same.


def find(token: str) -> Correction | None:
    """The living correction of this token, or None whatever is wrong with it."""
    if not token or len(token) > LINK_TOKEN_CHARACTERS_MAX:
        return None
    return (
        Correction.objects.select_related("case__run", "case__workspace", "workspace")
        .filter(
            token_digest=link_digest(token),
            state=CorrectionState.PUBLISHED,
            revoked_at=None,
            expires_at__gt=Now(),
        )
        .first()
    )


def is_readable(correction: Correction) -> bool:
    """Whether its link opens it still."""
    if correction.state != CorrectionState.PUBLISHED or not correction.token_digest:
        return False
    return correction.expires_at is not None and correction.expires_at > database_time()


def link_of(correction: Correction) -> str:
    """The whole address, for operators; empty where there is none (any more), or no key of the desk
    opens what is kept of it.
    """
    if correction.state != CorrectionState.PUBLISHED or correction.token_sealed is None:
        return ""
    token = shown_token(correction.token_sealed, correction.token_digest)
    return address(token) if token else ""


def address(token: str) -> str:
    return f"{settings.AMENDS_URL}/c/{token}/"


def was_opened(correction: Correction) -> None:
    """Count that the link was opened: by the person, or by a program that looks at links (a mail
    scanner, the preview of a chat), so nobody is told by it.
    """
    Correction.objects.filter(pk=correction.pk).update(
        first_read_at=Coalesce("first_read_at", Now()), read_count=F("read_count") + 1
    )


MAIL, WEBHOOK, LINK = "mail", "webhook", "link"
HANDED = "handed on"
"""By somebody of the desk, as they say: no way that publishing could choose."""
WAYS = (MAIL, WEBHOOK, LINK)
SUBJECT, ANSWERED = EventType.CORRECTION_PUBLISHED, EventType.CORRECTION_ANSWERED
BATCH = 200
FOLLOWED = Turns(BATCH)


def why_not_by(correction: Correction, ways: Sequence[str], subject: str = SUBJECT) -> str:
    """Why it cannot go out on these ways; empty where it can."""
    strange = [way for way in ways if way not in WAYS]
    if strange:
        return f"There is no way “{strange[0]}” to tell somebody."
    if not ways:
        return "Choose how the person is told."
    if MAIL in ways and not channels.is_address(correction.contact):
        return "No mail address of this person is known."
    if MAIL in ways and not channels.sends_mail():
        return "This desk sends no mail, for no mail server is set up: hand the link on yourself."
    if WEBHOOK in ways and not webhooks(correction, subject).exists():
        return "No signed webhook takes corrections in this workspace."
    return ""


def webhooks(correction: Correction, subject: str = SUBJECT) -> QuerySet[Channel]:
    """Signed webhooks that name corrections among their subjects: the customer's own product."""
    found = Channel.objects.filter(
        workspace=correction.workspace_id, kind=ChannelKind.WEBHOOK, disabled_at=None
    )
    return found.filter(subjects__contains=[subject]) | found.filter(
        subjects__contains=["correction.*"]
    )


def send(correction: Correction, link: str, ways: Sequence[str]) -> None:
    """Put it on its way; the caller holds the transaction of the publishing."""
    told = facts_of(correction)
    message = Message(title=correction.title, text=correction.lead, url=link, facts=told)
    if LINK in ways:
        note(correction, LINK, state="made", sent_at=database_time())
    if MAIL in ways:
        key = f"correction/{correction.reference}/mail"
        mail = _mail(correction, link)
        channels.write_to(correction.workspace, correction.contact, SUBJECT, mail, key=key)
        note(correction, MAIL, address=correction.contact, message_key=key)
    if WEBHOOK in ways:
        for channel in webhooks(correction):
            key = f"correction/{correction.reference}"
            channels.tell(channel, SUBJECT, message, key=key)
            note(correction, WEBHOOK, address=channel.name, message_key=f"{key}/{channel.pk}")


def facts_of(correction: Correction) -> dict[str, str]:
    """Whose it is, for programs."""
    facts = {"correction": correction.reference, "person": correction.person_id}
    return facts | ({"language": correction.language} if correction.language else {})


def _mail(correction: Correction, link: str) -> Message:
    """The letter in its person's language, with the name of whose it is; where the language is not
    known, in English, and in each other that the page behind the link is there in that one, too.
    """
    with translation.override(correction.language or "en"):
        title, lead = drafting.title_of(correction), drafting.lead_of(correction)
        closing = sentence(settings_of(correction.workspace), "closing")
    more = "" if correction.language else offer_of_languages()
    parts = (lead, f"{closing}\n{correction.workspace.name}", more)
    return Message(title=title, text="\n\n".join(filter(None, parts)), url=link)


def is_untold(correction: Correction) -> bool:
    """Whether nobody knows of it yet, as far as the desk knows: it was neither sent nor contested,
    and nobody says that they handed it on. A link that was only made or opened tells nobody."""
    is_heard = correction.still_wrong_at is not None or correction.is_erased
    if correction.state != CorrectionState.PUBLISHED or is_heard:
        return False
    return not any(way.state == DeliveryState.SENT for way in correction.deliveries.all())


@transaction.atomic
def hand_on(correction: Correction, *, by: User, seen: int, how: str) -> Correction:
    """Somebody says that the person was told, and how: by telephone, in another mail. Raises
    OutOfDate, CannotMove or InvalidInput. What is on its way to them goes all the same.
    """
    how = kept_text(how, REASON_CHARACTERS_MAX, asking="Say how the person was told.")
    correction = lock(correction, seen=seen)
    if correction.state != CorrectionState.PUBLISHED:
        raise CannotMove(correction, HANDED, "Only what is published is handed on.")
    if not is_untold(correction):
        raise CannotMove(correction, HANDED, "The person was told already.")
    note(correction, HANDED, state=DeliveryState.SENT, sent_at=database_time())
    correction.revision += 1
    correction.save(update_fields=["revision"])
    data = {"correction": correction.reference, "how": how}
    record(correction.case, EventType.CORRECTION_HANDED_ON, by=by, data=data)
    return correction


def note(correction: Correction, way: str, **more: object) -> None:
    CorrectionDelivery.objects.create(correction=correction, channel=way, **more)


PERHAPS_SENT = "Whether it was sent after the backup is not known"
"""What stands at a letter that waited when the backup was taken, once a desk came back from it."""


def doubt_what_waits() -> int:
    """After a restore nothing to affected persons that waited goes by itself: it may have gone, and
    a person says whether it goes once more, by handing on its link.
    """
    to_them = Delivery.objects.filter(subject__in=[SUBJECT, ANSWERED])
    waiting = to_them.filter(state=DeliveryState.WAITING)
    return waiting.update(state=DeliveryState.FAILED, last_error=PERHAPS_SENT)


def follow() -> int:
    """Note what became of messages on their way; the number that came to an end."""
    on_their_way = _on_their_way().select_related("correction__workspace")
    return each(FOLLOWED.next(on_their_way), _followed)


def _on_their_way() -> QuerySet[CorrectionDelivery]:
    return CorrectionDelivery.objects.filter(state="waiting").exclude(message_key="")


@transaction.atomic
def _followed(one: CorrectionDelivery) -> int:
    message = Delivery.objects.filter(
        workspace=one.correction.workspace_id, key=one.message_key
    ).first()
    if message is None:
        return 0
    ended = message.state != DeliveryState.WAITING
    moved = CorrectionDelivery.objects.filter(pk=one.pk, state="waiting").update(
        state=message.state,
        tries=message.tries,
        next_try_at=None if ended else message.next_try_at,
        sent_at=message.sent_at,
        last_error=message.last_error,
    )
    if ended and moved and message.last_error != PERHAPS_SENT:
        what = "delivered" if message.state == DeliveryState.SENT else "undelivered"
        data = {"correction": one.correction.reference, "way": one.channel, "tries": message.tries}
        record(one.correction.case, EventType(f"correction.{what}"), data=data, part="delivery")
    return int(ended and bool(moved))


SALT_BYTES = 32


class CannotPublish(NotPossible):
    """We stopped because the correction may not be published as it is; the sentence says why."""


def why_not(correction: Correction) -> str:
    """Why it cannot be published now; empty where it can."""
    if correction.state != CorrectionState.DRAFT:
        return "It was published already."
    case = correction.case
    sent = Step.objects.filter(plan__case=case, state__in=UNDER_WAY)
    if case.state in UNDER_A_PLAN or case.plans.filter(state__in=LIVING).exists() or sent.exists():
        return "The recovery has not ended yet."
    waiting = settling.steps_in_doubt(case)
    if any(step.is_lost or step.was == StepState.APPLIED for step in waiting):
        return "A step may have undone something, or twice: settle it first."
    is_left = all(one["outcome"] in {"left", "not_undone"} for one in correction.facts["items"])
    is_expected = case.outcome == CaseOutcome.EXPECTED and case.closed_by_id
    told = case.corrections.filter(person_id=correction.person_id, published_at__isnull=False)
    if is_expected and is_left and not told.exists():  # else they hear how it stands now
        return "Its case was closed as expected, and this tells of a mistake."
    if not correction.facts["items"] and not correction.facts.get("takes_back"):
        gone, none = "What it tells is erased: there is nobody to tell.", "Nothing of this person’s"
        return gone if correction.is_erased else f"{none} was changed."
    return ""


def publish(correction: Correction, **chosen: Any) -> Correction:
    """Make it readable by its link and send it, as `_published` says; where something has happened
    since it was drafted, the draft follows, and OutOfDate is raised for whoever read the other.
    """
    if not why_not(correction):
        drafting.draft(correction.case)
    return _published(correction, **chosen)


@transaction.atomic
def _published(
    correction: Correction,
    *,
    by: User | None,
    seen: int,
    ways: Sequence[str] = (LINK,),
    valid_days: int | None = None,
) -> Correction:
    """Make it readable by its link and send it; raises OutOfDate, CannotPublish or CannotMove.

    `by` is None where policy publishes what it compensated by itself; `valid_days` is how long the
    link opens it, by default as the workspace has set it.
    """
    correction = lock(correction, seen=seen)
    if correction.state != CorrectionState.DRAFT:
        raise CannotMove(correction, CorrectionState.PUBLISHED, "It was published already.")
    days = valid_days or settings_of(correction.workspace).valid_days
    hindrance = why_not(correction) or why_not_by(correction, ways)
    if days not in DAYS:
        hindrance = "A link lives as long as one of the offered times."
    if hindrance:
        raise CannotPublish(hindrance)
    token, correction.token_digest, correction.token_sealed = new_link_token()
    correction.facts_salt = secrets.token_bytes(SALT_BYTES)
    correction.published_at = database_time()
    correction.published_by = by
    correction.expires_at = correction.published_at + timedelta(days=days)
    correction.state = CorrectionState.PUBLISHED
    correction.revision += 1
    correction.event_id = record(
        correction.case,
        EventType.CORRECTION_PUBLISHED,
        by=by,
        part="policy",
        data=event_data(correction, ways),
    )
    correction.save()
    send(correction, address(token), ways)
    return correction


def event_data(correction: Correction, ways: Sequence[str]) -> dict[str, Any]:
    """What the ledger keeps: the digest of facts and words, and on which ways it went out."""
    return {
        "correction": correction.reference,
        "person": correction.person_id,
        "facts_digest": facts_digest(bytes(correction.facts_salt or b""), correction.facts),
        "words_digest": facts_digest(bytes(correction.facts_salt or b""), words_of(correction)),
        "ways": list(ways),
        "expires_at": correction.expires_at.isoformat() if correction.expires_at else None,
    }


def words_of(correction: Correction) -> dict[str, Any]:
    return {
        "title": correction.title,
        "lead": correction.lead,
        "wording": correction.wording,
    }


def facts_digest(salt: bytes, facts: Any) -> str:
    """`sha256:<hex>` over the salt and the canonical JSON (RFC 8785) of the facts."""
    return "sha256:" + hashlib.sha256(salt + canonical_of(facts)).hexdigest()


TAKEN_BACK = "The correction was revoked before it was sent"


@transaction.atomic
def revoke(correction: Correction, *, by: User, seen: int, reason: str) -> Correction:
    """Let the link open nothing any more, and take back what waits to be sent; raises OutOfDate,
    CannotMove or InvalidInput. Who is being sent it at this moment still gets it.
    """
    reason = kept_text(reason, REASON_CHARACTERS_MAX, asking="Say why it is revoked.")
    correction = lock(correction, seen=seen)
    if correction.state != CorrectionState.PUBLISHED:
        raise CannotMove(correction, CorrectionState.REVOKED, "Only what is published is revoked.")
    correction.state = CorrectionState.REVOKED
    correction.revoked_at = database_time()
    correction.revision += 1
    correction.save(update_fields=["state", "revoked_at", "revision"])
    keys = correction.deliveries.filter(state="waiting").values("message_key")
    waiting = Delivery.objects.filter(
        workspace=correction.workspace_id, key__in=keys, state=DeliveryState.WAITING
    )
    waiting.update(state=DeliveryState.FAILED, last_error=TAKEN_BACK)
    data = {"correction": correction.reference, "reason": reason}
    record(correction.case, EventType.CORRECTION_REVOKED, by=by, data=data)
    return correction


# What the scheduler does of itself: drafts of cases that were just recovered, and what is due.


DRAFTS = 50
DRAFTED, BY_HAND, UNDONE_AGAIN, PUBLISHED = (Turns(DRAFTS) for _ in range(4))
LOOK_BACK_DAYS = 7
"""Cases closed longer ago have their drafts, or get them when somebody asks."""
COMING = timedelta(minutes=1)


def sweep() -> int:
    """Draft, publish and follow what is due; how many. What fails in one keeps no other waiting."""
    return each((draft_due, publish_due, follow), lambda work: work())


def draft_due() -> int:
    """Draft what affected people are told of cases that were put right; the number of cases."""
    cases = [*DRAFTED.next(_to_draft()), *BY_HAND.next(_put_right_by_hand()), *_to_draft_anew()]
    return each(cases, _draft)


def is_coming(case: Case) -> bool:
    """Whether the case was just closed as recovered, and is about to be drafted."""
    return _to_draft().filter(pk=case.pk, closed_at__gt=Now() - COMING).exists()


def _draft(case: Case) -> int:
    drafting.draft(case)
    same_end = Case.objects.filter(pk=case.pk, closed_at=case.closed_at)
    return same_end.update(corrections_drafted_at=Clock())


def _to_draft() -> QuerySet[Case]:
    return _untold().filter(closed_at__gt=Now() - timedelta(days=LOOK_BACK_DAYS))


def _put_right_by_hand() -> QuerySet[Case]:
    """Cases closed so of which somebody was told otherwise before; the others are not to draft."""
    waiting = Case.objects.filter(state=CaseState.CLOSED, corrections_drafted_at=None)
    return waiting.filter(outcome=CaseOutcome.ALREADY_HANDLED, by_hand_at__isnull=False)


def _to_draft_anew() -> list[Case]:
    """Cases that were closed longer ago, whose plan's work was undone lately: what was told of them
    is no longer so."""
    lately = UNDONE_AGAIN.next(_undone_lately().select_related("case__run"))
    behind = {case.pk for plan in lately for case in cases_behind(plan.case.run)}
    return list(_untold().filter(pk__in=behind).exclude(pk__in=_to_draft().values("pk")))


def _undone_lately() -> QuerySet[Plan]:
    """Plans that undid what the desk itself had done: few, for only people open such a case."""
    return Plan.objects.filter(
        case__agent=None,
        state=PlanState.FINISHED,
        ended_at__gt=Now() - timedelta(days=LOOK_BACK_DAYS),
    )


def _untold() -> QuerySet[Case]:
    # What the desk ended as expected it had restored, and that was undone again.
    told = Exists(Correction.objects.filter(case=OuterRef("pk")))
    stands_again = Q(outcome=CaseOutcome.EXPECTED, closed_by=None) & Q(told)
    return Case.objects.filter(
        Q(outcome__in=TOLD) | stands_again,
        state=CaseState.CLOSED,
        corrections_drafted_at=None,
    )


def publish_due() -> int:
    """Publish drafts of auto-compensated cases where the policy says so; the number published."""
    waiting = _to_publish()
    here = set(waiting.order_by().values_list("workspace", flat=True).distinct())
    willing = [pk for pk in here if policy.active(pk).auto_compensation.publish]
    mine = waiting.filter(workspace__in=willing).select_related("workspace", "case")
    return each(PUBLISHED.next(mine), _publish)


def _to_publish() -> QuerySet[Correction]:
    # Of a run that began before the ledger lost what happened a letter may be out: a person says.
    plans = Plan.objects.filter(case=OuterRef("case"), started_at__isnull=False)
    return Correction.objects.filter(
        Exists(plans.filter(automatic=True)),
        ~Exists(plans.filter(automatic=False)),
        ~Exists(pauses.lost_since("case__run__started_at")),
        ~Q(facts__items=[]),
        state=CorrectionState.DRAFT,
        case__state=CaseState.CLOSED,
        case__outcome=CaseOutcome.RESTORED,
        drafted_at__gt=Now() - timedelta(days=1),
    )


def _publish(correction: Correction) -> int:
    way = LINK if why_not_by(correction, [MAIL]) else MAIL
    try:
        publish(correction, by=None, seen=correction.revision, ways=[way])
    except REFUSALS as stopped:
        logger.info("correction %s waits for a person: %s", correction.reference, stopped)
        return 0
    return 1


QUEUES = (_to_draft, _put_right_by_hand, _undone_lately, _to_publish, _on_their_way)
"""What waits for `sweep`."""
