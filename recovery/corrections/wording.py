"""Wording: how things and fields are called and others' words are marked in the reader's language,
and the sentences of the trail that an administrator may say otherwise in it.

What a workspace does not word stands in the catalogues. Facts have no way into its sentences: they
say how to go on, and never what happened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import translation
from django.utils.translation import get_language, gettext_noop, ngettext
from django.utils.translation import gettext as _

from amends.protocol.canonical import digest
from amends.protocol.vocabulary import EventType
from recovery.models import CorrectionSettings
from recovery.run_facts.sentences import plural, singular
from workspaces import access, formatting, locks, outbox
from workspaces.free_text import InvalidInput, kept_text
from workspaces.models import User, Workspace
from workspaces.moves import CannotMove

LANGUAGES: dict[str, str] = dict(settings.LANGUAGES)
SENTENCE_CHARACTERS_MAX = 500
FIELDS_MAX = 100
FIELD_CHARACTERS_MAX = 60
FIELD = "field "
"""Before the name of a field among a workspace's own sentences."""
GLOBS_MAX = 50
GLOB_CHARACTERS_MAX = 120
DAYS = (30, 90, 180, 365)
ANSWER_DAYS_MAX = 90

SENTENCES = {
    "nothing_to_do": gettext_noop("You need not do anything."),
    "ask_again": gettext_noop(
        "If you still want what you had asked for, ask for it again: nothing goes on by itself."
    ),
    "look_for_money": gettext_noop(
        "If the money has not come back within ten days, write to us below."
    ),
    "delete_mail": gettext_noop(
        "Please delete the mail that was not meant for you. You need not do anything else."
    ),
    "left_over": gettext_noop(
        "If what still stands does not suit you, write to us below: a person decides with you what"
        " can be done."
    ),
    "rights": gettext_noop(
        "You may contest this, whatever your reason. A person who took no part in it looks at it"
        " anew and answers you with reasons. The law where you live may give you further rights."
    ),
    "closing": gettext_noop("We are sorry for the trouble."),
}
"""Each with its name, as the catalogues have it in English."""


def settings_of(workspace: Workspace) -> CorrectionSettings:
    """What the workspace has set, or what holds where it has set nothing; not saved."""
    found = CorrectionSettings.objects.filter(workspace=workspace).first()
    return found or CorrectionSettings(workspace=workspace)


def sentence(settings: CorrectionSettings, name: str) -> str:
    """In the language that is active: the workspace's own, else the catalogue's."""
    own: Mapping[str, str] = settings.sentences.get(translation.get_language() or "en", {})
    return own.get(name) or _(SENTENCES[name])


def fields(settings: CorrectionSettings) -> dict[str, str]:
    """What the workspace calls fields in the language that is active, by their names."""
    own: Mapping[str, str] = settings.sentences.get(translation.get_language() or "en", {})
    named = {name: text for name, text in own.items() if name.startswith(FIELD)}
    return {name.removeprefix(FIELD): text for name, text in named.items()}


def fields_read(lines: Sequence[str]) -> dict[str, str]:
    """`seat_class = Sitzklasse`, one a line; raises InvalidInput and says which line it is."""
    said = [line.strip() for line in lines if line.strip()]
    if len(said) > FIELDS_MAX:
        raise InvalidInput(f"At most {FIELDS_MAX} fields, please.")
    found = {}
    for line in said:
        name, is_said, text = (part.strip() for part in line.partition("="))
        if not name or not is_said or not text:
            raise InvalidInput(f"“{line}”: write a field’s name, =, and what people call it.")
        if max(len(name), len(text)) > FIELD_CHARACTERS_MAX:
            raise InvalidInput(f"“{name}”: at most {FIELD_CHARACTERS_MAX} characters, please.")
        found[name] = text
    return found


def as_seen(settings: CorrectionSettings, language: str) -> str:
    """What the form of this language shows, told apart from what it showed before."""
    own = settings.sentences.get(language, {})
    return digest([own, settings.internal, settings.valid_days, settings.answer_days])


@transaction.atomic
def word(
    workspace: Workspace,
    *,
    by: User,
    language: str,
    sentences: Mapping[str, str],
    internal: Sequence[str],
    valid_days: int,
    answer_days: int,
    fields: Mapping[str, str] | None = None,
    seen: str | None = None,
) -> CorrectionSettings:
    """Set them; raises NotAllowed, InvalidInput, or CannotMove where something else stands there
    than was `seen` (`as_seen`). What is left empty is the catalogue's. `fields`: what fields are
    called, by their names (`fields_read`).
    """
    access.require(by, "administer", workspace)
    if language not in LANGUAGES:
        raise InvalidInput("There are no pages in this language.")
    if valid_days not in DAYS or not 1 <= answer_days <= ANSWER_DAYS_MAX:
        raise InvalidInput(f"An answer comes within 1 to {ANSWER_DAYS_MAX} days.")
    globs = [glob.strip() for glob in internal if glob.strip()]
    if len(globs) > GLOBS_MAX or any(len(glob) > GLOB_CHARACTERS_MAX for glob in globs):
        raise InvalidInput(f"At most {GLOBS_MAX} short names of kinds, please.")
    own = {
        name: text
        for name in SENTENCES
        if (text := kept_text(sentences.get(name, ""), SENTENCE_CHARACTERS_MAX))
    }
    own |= {f"{FIELD}{name}": text for name, text in (fields or {}).items()}
    list(locks.locked(Workspace.objects.filter(pk=workspace.pk)).values_list("pk"))
    settings = settings_of(workspace)
    if seen not in {None, as_seen(settings, language)}:
        why = (
            "Somebody has changed them since you saw them. What you typed stands below; in another"
        )
        why += " tab you see what holds now. Saved again, yours takes its place."
        raise CannotMove(settings, "worded", why)
    settings.sentences = {**settings.sentences, language: own}
    settings.internal, settings.valid_days, settings.answer_days = globs, valid_days, answer_days
    settings.save()
    what = {"language": language, "sentences": own, "internal": globs,
            "valid_days": valid_days, "answer_days": answer_days}  # fmt: skip
    outbox.record(workspace, EventType.CORRECTIONS_WORDED, by=by, data=what)
    return settings


# What things and fields are called, and how others' words are marked.

IN_SMALLEST_UNIT = "_minor"
NAMED_MAX = 3
# Fields that systems call alike; others stand as their system named them, without its signs.
FIELDS = {
    "address": gettext_noop("address"),
    "amount": gettext_noop("amount"),
    "assignee": gettext_noop("assignee"),
    "balance": gettext_noop("balance"),
    "cabin": gettext_noop("cabin"),
    "city": gettext_noop("city"),
    "content": gettext_noop("content"),
    "country": gettext_noop("country"),
    "currency": gettext_noop("currency"),
    "date": gettext_noop("date"),
    "description": gettext_noop("description"),
    "due date": gettext_noop("due date"),
    "email": gettext_noop("e-mail address"),
    "end": gettext_noop("end"),
    "flights": gettext_noop("flights"),
    "held by": gettext_noop("holder"),
    "holder": gettext_noop("holder"),
    "location": gettext_noop("location"),
    "name": gettext_noop("name"),
    "note": gettext_noop("note"),
    "notes": gettext_noop("notes"),
    "owner": gettext_noop("owner"),
    "passengers": gettext_noop("passengers"),
    "phone": gettext_noop("phone number"),
    "plan": gettext_noop("plan"),
    "price": gettext_noop("price"),
    "priority": gettext_noop("priority"),
    "quantity": gettext_noop("quantity"),
    "room": gettext_noop("room"),
    "seat": gettext_noop("seat"),
    "seats": gettext_noop("seats"),
    "start": gettext_noop("start"),
    "state": gettext_noop("state"),
    "status": gettext_noop("status"),
    "subject": gettext_noop("subject"),
    "text": gettext_noop("text"),
    "time": gettext_noop("time"),
    "title": gettext_noop("title"),
    "total": gettext_noop("total"),
}
NO_BREAK = "\N{NO-BREAK SPACE}"
OF_MONEY = re.compile(
    rf"(?P<sign>\N{{MINUS SIGN}}?)(?P<symbol>[^\d\s]*)(?P<number>\d[\d{NO_BREAK}]*(?:\.\d+)?)"
    rf"(?:{NO_BREAK}(?P<code>[A-Z]{{3}}))?"
)
_named_here: ContextVar[Mapping[str, str]] = ContextVar("fields_named_here", default={})  # noqa: B039 - read alone


@contextmanager
def naming(fields: Mapping[str, str]) -> Iterator[None]:
    """Within, a field is called what these words say: a workspace's own, in the reader's language,
    by the field's name as its system has it.
    """
    token = _named_here.set(fields)
    try:
        yield
    finally:
        _named_here.reset(token)


def is_english() -> bool:
    return (get_language() or "en").startswith("en")


def quoted(text: object) -> str:
    """Somebody else's words in the quotation marks of the reader's language, which they cannot
    leave: their own have become straight ones.
    """
    return in_marks(formatting.quoted(text))


def in_marks(text: str) -> str:
    """What stands in “English” quotation marks, in those of the reader's language."""
    if not (text.startswith("“") and text.endswith("”")):
        return text
    return _("“%(words)s”") % {"words": text[1:-1]}


def sum_words(money: str) -> str:
    """A sum as it was told (`€1 286.00`), in the reader's language: `1 286,00 €`."""
    found = None if is_english() else OF_MONEY.fullmatch(money)
    if found is None:
        return money
    said = f"{found['sign']}{found['number'].replace('.', ',')}"
    return f"{said}{NO_BREAK}{found['symbol'] or found['code']}"


def number_words(number: float) -> str:
    """`1.5`, in the reader's language: `1,5`."""
    return str(number) if is_english() else str(number).replace(".", ",")


def roles_listed(roles: list[str]) -> str:
    """What teams are called: as the workspace words it in the reader's language, else in their own
    words, in quotation marks where the page is in another language than most of them.
    """
    own = _named_here.get()
    return and_listed(
        [
            formatting.plain(own[one]) if own.get(one) else one if is_english() else quoted(one)
            for one in roles
        ]
    )


def and_listed(words: list[str]) -> str:
    """`a`, `a and b`, `a, b and 4 more`."""
    more = len(words) - NAMED_MAX + 1
    if len(words) > NAMED_MAX:
        words = [*words[: NAMED_MAX - 1], more_words(more)]
    return and_joined(words)


def more_words(count: int) -> str:
    return ngettext("%(count)s more", "%(count)s more", count) % {"count": count}


def named_of(items: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """The things that are told of, each once."""
    return {(one["target"]["type"], one["target"]["id"]) for one in items}


def things_of(items: Sequence[Mapping[str, Any]], *, is_all: bool = True) -> str:
    """`3 of your tickets`; where more happened than is listed, no number of them."""
    kinds = {one["target"]["type"] for one in items}
    if len(kinds) != 1 or not is_all:
        return _("several things of yours")
    kind = kind_of(next(iter(kinds)))
    if not kind:
        return _("your details")
    names = named_of(items)
    if len(names) == 1:
        return _("your %(kind)s") % {"kind": kind}
    # Only English makes its plural so; the others count by a sign.
    many = plural(2, kind).partition(" ")[2] if is_english() else kind
    return _("%(count)s of your %(kind)s") % {"count": len(names), "kind": many}


def and_joined(words: list[str]) -> str:
    if len(words) < 2:  # noqa: PLR2004 - one needs no “and”
        return "".join(words)
    return _("%(first)s and %(last)s") % {"first": ", ".join(words[:-1]), "last": words[-1]}


def field_words(name: str) -> str:
    """`seat_class`, `seatClass` and `trip.seat-class` are all the seat class of something; under
    words that a workspace or the catalogues have for it, those. Else its own word stands in
    quotation marks where the page is in another language than it.
    """
    own = _named_here.get().get(name)
    if own:
        return formatting.plain(own)
    bare = (name.rpartition(".")[2] or name).removesuffix(IN_SMALLEST_UNIT)
    humps = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", bare)
    words = formatting.plain(re.sub(r"[_\s-]+", " ", humps)).lower() or "content"
    if words in FIELDS:
        return _(FIELDS[words])
    return words if is_english() else quoted(words)


# Kinds of things that people know by a word of their own.
KINDS_OF_THINGS = {
    "account": gettext_noop("account"),
    "address": gettext_noop("address"),
    "alarm": gettext_noop("alarm"),
    "album": gettext_noop("album"),
    "appointment": gettext_noop("appointment"),
    "article": gettext_noop("article"),
    "backup": gettext_noop("backup"),
    "bill": gettext_noop("bill"),
    "booking": gettext_noop("booking"),
    "calendar entry": gettext_noop("calendar entry"),
    "card": gettext_noop("card"),
    "cash account": gettext_noop("cash account"),
    "certificate": gettext_noop("certificate"),
    "charge": gettext_noop("charge"),
    "claim": gettext_noop("claim"),
    "comment": gettext_noop("comment"),
    "contact": gettext_noop("contact"),
    "contract": gettext_noop("contract"),
    "customer": gettext_noop("customer"),
    "delivery": gettext_noop("delivery"),
    "document": gettext_noop("document"),
    "e-mail": gettext_noop("e-mail"),
    "file": gettext_noop("file"),
    "flight": gettext_noop("flight"),
    "folder": gettext_noop("folder"),
    "form": gettext_noop("form"),
    "forwarding": gettext_noop("forwarding"),
    "hotel": gettext_noop("hotel"),
    "insurance": gettext_noop("insurance"),
    "invoice": gettext_noop("invoice"),
    "label": gettext_noop("label"),
    "letter": gettext_noop("letter"),
    "licence": gettext_noop("licence"),
    "limit order": gettext_noop("limit order"),
    "mail": gettext_noop("mail"),
    "meeting": gettext_noop("meeting"),
    "member": gettext_noop("member"),
    "message": gettext_noop("message"),
    "note": gettext_noop("note"),
    "order": gettext_noop("order"),
    "parcel": gettext_noop("parcel"),
    "password": gettext_noop("password"),
    "payment": gettext_noop("payment"),
    "permission": gettext_noop("permission"),
    "phone": gettext_noop("phone number"),
    "photo": gettext_noop("photo"),
    "policy": gettext_noop("policy"),
    "post": gettext_noop("post"),
    "prescription": gettext_noop("prescription"),
    "product": gettext_noop("product"),
    "profile": gettext_noop("profile"),
    "project": gettext_noop("project"),
    "refund": gettext_noop("refund"),
    "rental car": gettext_noop("rental car"),
    "reservation": gettext_noop("reservation"),
    "room": gettext_noop("room"),
    "savings plan": gettext_noop("savings plan"),
    "seat": gettext_noop("seat"),
    "share": gettext_noop("share"),
    "shipment": gettext_noop("shipment"),
    "standing order": gettext_noop("standing order"),
    "stay": gettext_noop("stay"),
    "subscription": gettext_noop("subscription"),
    "task": gettext_noop("task"),
    "ticket": gettext_noop("ticket"),
    "transfer": gettext_noop("transfer"),
    "trip": gettext_noop("trip"),
    "user": gettext_noop("user"),
    "voucher": gettext_noop("voucher"),
}


def kind_of(target_type: str) -> str:
    """`ticket`. Of a kind without a word of its own in the reader's language that of the last part
    of its name, or a neutral one, and beside it what the agent calls it: `Eintrag „cruise cabin“`.
    """
    word = singular(target_type) if formatting.is_identifier(target_type) else quoted(target_type)
    if word in KINDS_OF_THINGS:
        return _(KINDS_OF_THINGS[word])
    if is_english() or not word:
        return word
    known = KINDS_OF_THINGS.get(word.rpartition(" ")[2])
    return f"{_(known) if known else _('item')} {quoted(word)}"
