"""What things and fields are called, and others' words are marked, in the reader's language."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from django.utils.translation import get_language, gettext_noop, ngettext
from django.utils.translation import gettext as _

from recovery.run_facts.sentences import singular
from workspaces import formatting

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
