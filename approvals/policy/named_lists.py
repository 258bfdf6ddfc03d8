"""Named lists: what a policy says of them, and how a value is looked for on one.

A value is compared in the normal form of the list's kind, so that an IBAN in groups, an address in
capitals and a link stand for what they name. Accounts and cards are compared by the marks with
which the ledger masks them, as are values that a call holds masked; what was masked in another way
than the list's kind can be found, but never be said to be missing.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import getaddresses
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from amends.protocol.lookalikes import plain
from amends.protocol.masking import MaskingKey, holds_bare, holds_mask, kind_of, masked
from approvals.policy.spelling import leaves
from ledger.disclosure import is_iban
from workspaces.formatting import is_all_seen

KINDS = ("text", "mail", "domain", "iban", "card")
HIDDEN_KINDS = frozenset({"iban", "card"})
"""Their entries are kept by their marks alone."""
NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")
ENTRY_CHARACTERS_MAX = 300
LEAVES_MAX = 20
LABELS_MAX = 10
"""Of a host so many parents are looked for as `*.parent`."""
LINE_CHARACTERS_MAX = 2_000
"""A longer line is no address, and not one of several."""

LEAD_TO_A_HOST = frozenset({"http", "https", "ws", "wss", "ftp", "ftps", "sftp", "ssh"})
"""What a link may begin with: `javascript://example.org/` leads nowhere near example.org."""

_MAIL = re.compile(r"[^@\s,<>]+@[^@\s,<>]+")
_HOST = re.compile(r"(?:\*\.)?[^\s/@:*?#,;%\[\]()<>\"'&=+!$|^`{}\\]+")
_LINKED = re.compile(r"[/?#:\[\]]")
"""Behind the host of a link, which an address has nothing of before its @."""
_IBAN = re.compile(r"[A-Z]{2}[0-9]{2}[0-9A-Z]{11,30}")
_CARD = re.compile(r"[0-9]{12,19}")
_MARK = re.compile(r"⟦masked:[a-z0-9]+:v1:([0-9a-f]{32})")
_COMMENT = re.compile(r"\([^()@<>,;:\"\\]*\)")
_BRACKETS = frozenset("()")
_QUOTING = frozenset('"\\')
_APART = frozenset("ßẞς\u200c\u200d")
"""What older rules for names of hosts drop or write otherwise, and newer ones tell apart."""
_SIGNS = "/\\?#@:%,<>"
"""By which an address is taken apart; one that only looks so is none to every program."""
_TAGS = {"iban": {"iban"}, "card": {"card", "cardnumber", "creditcardnumber"}}


@dataclass(frozen=True, slots=True)
class DeclaredList:
    """What the policy says of a list; `entries` are those that stand in the document itself."""

    name: str
    kind: str = "text"
    words: str = ""
    entries: frozenset[str] = frozenset()
    """By the keys under which they are found."""


@dataclass(frozen=True, slots=True)
class WantedValue:
    """One value that is looked for: the keys under which it stands on a list, and whether it is
    missing where none is found.
    """

    keys: Sequence[str]
    can_be_missing: bool = True


def normal(kind: str, text: str) -> str:
    """The normal form of an entry or a value; empty where it is none of this kind."""
    written, text = text, unicodedata.normalize("NFKC", text).strip()
    if kind == "iban":
        found = re.sub(r"[\s-]", "", text).upper()
        return found if _IBAN.fullmatch(found) and is_iban(found) else ""
    if kind == "card":
        found = re.sub(r"[\s-]", "", text)
        return found if _CARD.fullmatch(found) and holds_mask(masked(found)) else ""
    text = " ".join(text.split())
    if kind == "text":
        return plain(text)
    if len(text) > LINE_CHARACTERS_MAX or _is_read_otherwise(written, text):
        return ""
    if kind == "domain":
        return _host(text)
    address = plain(text)
    if "<" in address:
        several = _read(address)
        address = several[0] if len(several) == 1 else ""
    return _with_host(address) if _MAIL.fullmatch(address) else ""


def _is_read_otherwise(written: str, text: str) -> bool:
    """Whether other programs may take an address apart in another way, or its host for another."""
    looks_so = any(text.count(one) != written.count(one) for one in _SIGNS)
    return looks_so or not _APART.isdisjoint(written)


def _with_host(address: str) -> str:
    """The address with its host as it stands in the DNS; empty of one whose name is quoted, or has
    something unseen in it: `"eve"@example.org` is `eve@example.org` to some programs.
    """
    name, _, host = address.rpartition("@")
    host = _ascii(host).rstrip(".")
    is_plain = _QUOTING.isdisjoint(name) and is_all_seen(name)
    return f"{name}@{host}" if host and is_plain else ""


def _host(text: str) -> str:
    """The host that a mail address, a link or a name of a host stands for; empty of what programs
    read in several ways, such as `evil.test\\@example.org`.
    """
    if "\\" in text or " " in text:
        return ""
    if "://" in text:
        return _host_of_link(text)
    name, at, host = plain(text).rpartition("@")
    is_mail = not at or (_MAIL.fullmatch(f"{name}@{host}") and not _LINKED.search(name))
    host = _ascii(host.split("/", 1)[0] if not at else host).rstrip(".")
    return host if is_mail and _HOST.fullmatch(host) else ""


def _host_of_link(text: str) -> str:
    try:
        link = urlsplit(text)
        host = plain(link.hostname or "")
    except ValueError:
        return ""
    host = _ascii(host).rstrip(".")
    return host if link.scheme in LEAD_TO_A_HOST and _HOST.fullmatch(host) else ""


def _ascii(host: str) -> str:
    """As it stands in the DNS, so that a name in another alphabet is one, however it is written."""
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return host


def key_of(kind: str, text: str, masking_key: MaskingKey | None) -> str:
    """The key under which a normal form stands on a list of this kind."""
    if kind in HIDDEN_KINDS:
        return mark_of(masking_key.placeholder(kind, text)) if masking_key else ""
    return sha256(f"{kind}\x1f{text}".encode()).hexdigest()[:32]


def mark_of(placeholder: str) -> str:
    """The mark of a placeholder, the same for the same value; empty of one without."""
    found = _MARK.match(placeholder)
    return found[1] if found else ""


def sought(kind: str, value: Any, masking_key: MaskingKey | None) -> list[WantedValue] | None:
    """What is looked for on a list of this kind, each of which has to stand there; None where it
    cannot be told: nothing is given, or something is no value of this kind.
    """
    texts = list(leaves(value))
    if kind in {"mail", "domain"}:
        texts = [one for text in texts for one in _addresses(text)]
    found = [_sought(kind, one, masking_key) for one in texts]
    known = [one for one in found if one is not None]
    return known if 0 < len(known) == len(found) <= LEAVES_MAX else None


def _addresses(text: Any) -> Iterable[Any]:
    """Of a line of several addresses each."""
    if not isinstance(text, str) or "@" not in text or "://" in text or holds_mask(text):
        return [text]
    return _read(text) or [text]


def _read(text: str) -> list[str]:
    """The addresses in a line; none where a bracket may hide one, for another program may send to
    what stands in it: `eve@example.org(evil@evil.test`.
    """
    if len(text) > LINE_CHARACTERS_MAX or not _BRACKETS.isdisjoint(_COMMENT.sub("", text)):
        return []
    return [address for _, address in getaddresses([text])]


def _sought(kind: str, value: Any, masking_key: MaskingKey | None) -> WantedValue | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value)
    if holds_mask(text):
        tag, mark = kind_of(text), mark_of(text)
        if tag is None or not mark or holds_bare(text):
            return None
        return WantedValue([mark], can_be_missing=tag in _TAGS.get(kind, ()))
    form = normal(kind, text)
    if not form or (kind in HIDDEN_KINDS and masking_key is None):
        return None
    forms = [form]
    if kind == "domain":
        labels = form.split(".")
        forms += [f"*.{'.'.join(labels[at:])}" for at in range(1, min(len(labels), LABELS_MAX))]
    is_seen = kind != "text" or is_all_seen(form)  # or it may be an entry to who reads it
    return WantedValue([key_of(kind, one, masking_key) for one in forms], can_be_missing=is_seen)


def stands(wanted: Iterable[WantedValue], found: Iterable[str]) -> bool | None:
    """Whether each stands among the keys that were `found`; None where that cannot be told."""
    keys = set(found)
    missing = [one for one in wanted if keys.isdisjoint(one.keys)]
    if any(one.can_be_missing for one in missing):
        return False
    return None if missing else True


def names_of(lists: Mapping[str, DeclaredList]) -> str:
    return ", ".join(sorted(lists)) or "none: name it under “lists”"
