"""Where a person finds a record itself: an address in the outside system's own pages.

An administrator writes it once for a connection, with signs for what a call was about. Nothing is
ever sent there by the desk: it stands on pages for whoever has to look.
"""

import re
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from django.core.exceptions import ValidationError
from django.core.validators import URLValidator

LINK_CHARACTERS_MAX = 500
VALUE_CHARACTERS_MAX = 300
SIGN = re.compile(r"\{(.*?)\}")
SIGNS = {
    "id": "the target's id", "name": "what follows the last / of it", "type": "its type",
    "key": "the key of the call",
}  # fmt: skip
OF_ONE = frozenset({"id", "name", "key"})
"""A link without one of these leads to the same place whatever it is about."""
ON_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})
UP = frozenset({".", ".."})
"""A browser takes these for steps in the path."""


class Link(NamedTuple):
    url: str
    words: str


def mistake(pattern: str) -> str:
    """What keeps this from being a template of an address, in words; empty if nothing does."""
    if len(pattern) > LINK_CHARACTERS_MAX:
        return f"{LINK_CHARACTERS_MAX} characters at most."
    signs = set(SIGN.findall(pattern))
    if unknown := sorted(signs - SIGNS.keys()):
        known = ", ".join(f"{{{name}}}" for name in SIGNS)
        return f"There is no {{{unknown[0]}}}: it takes {known}."
    if not signs & OF_ONE:
        return "Say with {id}, {name} or {key} where the record stands in it."
    return _mistake_of_address(pattern)


def _mistake_of_address(pattern: str) -> str:
    host = pattern.partition("://")[2].split("/")[0].split("?")[0].split("#")[0]
    if "{" in host or "@" in host or "\\" in pattern:
        return "Its host has to stand in it as it is, with nobody’s name before it."
    filled = SIGN.sub("x", pattern)
    try:
        URLValidator(schemes=["http", "https"])(filled)
        parts = urlsplit(filled)
    except (ValidationError, ValueError):
        return "That is no web address."
    if parts.scheme != "https" and parts.hostname not in ON_THIS_MACHINE:
        return "It begins with https://."
    return ""


def link(
    pattern: str, name: str, *, target_type: str, target_id: str, key: str = ""
) -> Link | None:
    """Where this record is, in the system that people know as `name`; None where nothing leads
    there. What agents wrote stands in it encoded, so that it changes neither host nor path.
    """
    values = {
        "id": target_id, "name": target_id.rstrip("/").rpartition("/")[2], "type": target_type,
        "key": key,
    }  # fmt: skip
    used = {values[sign] for sign in SIGN.findall(pattern) if sign in values}
    if not pattern or used & {"", *UP} or max(map(len, used)) > VALUE_CHARACTERS_MAX:
        return None
    url = SIGN.sub(lambda sign: quote(values[sign[1]], safe=""), pattern)
    return Link(url, f"Look in {name} ({urlsplit(url).hostname})")
