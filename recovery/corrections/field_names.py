"""What fields are called, and how somebody else's words are marked, in the reader's language."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from django.utils.translation import get_language, gettext_noop
from django.utils.translation import gettext as _

from workspaces import formatting

IN_SMALLEST_UNIT = "_minor"
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
