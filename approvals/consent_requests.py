"""Consent requests: the affected person is asked first, where the policy says so.

Their yes or no is evidence and starts nothing: it never grants, and it never rejects. Where the
rule says `must`, nobody grants before every affected person has said yes, so that the last word is
always one of the people who decide (docs/decisions/approvals.md).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from amends.protocol.vocabulary import EventType
from approvals import notifications
from approvals.deciders import locked
from approvals.digests import record
from approvals.models import Approval, ApprovalState, ConsentAnswer, ConsentRequest
from workspaces.free_text import REASON_CHARACTERS_MAX, kept_text
from workspaces.keys import (
    LINK_TOKEN_CHARACTERS_MAX,
    link_digest,
    new_link_token,
    shown_token,
)
from workspaces.moves import CannotMove
from workspaces.pages import language_of_tag

PEOPLE_MAX = 20
"""Affected people asked for one approval; whoever affects more asks nobody personally."""


@dataclass(frozen=True, slots=True)
class AffectedPerson:
    """An affected person, as the ledger knows them."""

    id: str
    name: str
    contact: str
    language: str = ""
    """One of LANGUAGES, or empty where none of them is known to be theirs."""


def affected(people: Iterable[Any]) -> list[AffectedPerson]:
    """These people ({id, name?, contact?, language?} of the wire, or nothing), each once."""
    found: dict[str, AffectedPerson] = {}
    for one in people:
        if isinstance(one, Mapping) and one.get("id"):
            name, contact = str(one.get("name") or "")[:200], one.get("contact")
            mail = contact[:320] if isinstance(contact, str) else ""
            person = AffectedPerson(
                str(one["id"])[:120], name, mail, language_of_tag(one.get("language"))
            )
            found.setdefault(person.id, person)
    return list(found.values())


def ask(approval: Approval, people: Iterable[AffectedPerson], words: str) -> list[ConsentRequest]:
    """Ask each of them; the caller holds the transaction. Without an address, the link is made.

    The headline tells of the whole plan, so it is told only where all of it is one person's.
    """
    everybody = list(people)[:PEOPLE_MAX]
    question = words or USUAL
    if len(everybody) == 1:
        question += _about(approval)
    return [_ask(approval, person, question) for person in everybody]


USUAL = gettext_noop("May we put right what was changed for you?")


def _about(approval: Approval) -> str:
    return f" It is about this: {approval.headline}."


def question_words(consent: ConsentRequest) -> str:
    """What they are asked, in the reader's language; a rule's own words stay as they are."""
    about = _about(consent.approval)
    asked = consent.question.removesuffix(about)
    words = _(USUAL) if asked == USUAL else asked
    if asked == consent.question:
        return words
    headline = consent.approval.headline
    return f"{words} {_('It is about this: %(headline)s.') % {'headline': headline}}"


def _ask(approval: Approval, person: AffectedPerson, question: str) -> ConsentRequest:
    token, digest, sealed = new_link_token()
    consent = ConsentRequest.objects.create(
        approval=approval,
        person_ref=person.id,
        name=person.name,
        contact=person.contact,
        question=question,
        token_digest=digest,
        token_sealed=sealed,
    )
    _record(consent, EventType.APPROVAL_AFFECTED_ASKED, question=question)
    notifications.ask_affected(consent, address(token), person.language)
    return consent


@transaction.atomic
def answer(consent: ConsentRequest, answered: str, note: str = "") -> ConsentRequest:
    """Write down their yes or no, once; the same again, as by a second click, is what is there.
    Raises CannotMove where it is over or was answered otherwise, and InvalidInput for a note that
    is too long.
    """
    note = kept_text(note, REASON_CHARACTERS_MAX)
    if answered not in {ConsentAnswer.YES, ConsentAnswer.NO}:
        raise CannotMove(consent, answered, _("the answer is yes or no"))
    approval = locked(consent.approval)
    if approval.state != ApprovalState.WAITING:
        raise CannotMove(consent, answered, _("it is already decided"))
    waiting = ConsentRequest.objects.filter(
        pk=consent.pk, answer="", approval__expires_at__gt=Now()
    )
    is_new = waiting.update(answer=answered, note=note, answered_at=Now())
    consent.refresh_from_db()
    if not is_new and (consent.answer, consent.note) == (answered, note):
        return consent
    if not is_new:
        raise CannotMove(consent, answered, _("it was answered before, or is over"))
    _record(consent, EventType.APPROVAL_AFFECTED_ANSWERED, answer=answered, note=note)
    notifications.consent_answered(consent)
    return consent


def find(token: str) -> ConsentRequest | None:
    """The request of a link whose approval still waits, or None whatever is wrong with it."""
    if not token or len(token) > LINK_TOKEN_CHARACTERS_MAX:
        return None
    living = ConsentRequest.objects.select_related("approval__workspace").filter(
        approval__state=ApprovalState.WAITING, approval__expires_at__gt=Now()
    )
    return living.filter(token_digest=link_digest(token)).first()


def link_of(consent: ConsentRequest) -> str:
    """The whole address, for operators who pass it on by hand; empty once it is over, or where no
    key of the desk opens what is kept of it.
    """
    if consent.answer or consent.approval.state != ApprovalState.WAITING:
        return ""
    token = shown_token(consent.token_sealed, consent.token_digest)
    return address(token) if token else ""


def lacking(approval: Approval) -> str:
    """What keeps deciders from granting, in words; empty where none of them stands in the way."""
    if approval.affected != "must":
        return ""
    answers = list(approval.consent_requests.values_list("answer", flat=True))
    if ConsentAnswer.NO in answers:
        return "the affected person does not want it, and the rule asks for their yes"
    if not answers or ConsentAnswer.OPEN in answers:
        return "the affected person is asked first and has not answered yet"
    return ""


def address(token: str) -> str:
    return f"{settings.AMENDS_URL}/ask/{token}/"


def _record(consent: ConsentRequest, event: EventType, **data: Any) -> None:
    record(consent.approval, event, affected=consent.person_ref, **data)
