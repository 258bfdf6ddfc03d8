"""Words: how facts become plain sentences. What agents wrote is cleaned and cut first."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ledger.snapshots import is_ref
from workspaces import formatting

NAMED_MAX = 3
HEADLINE_CHARACTERS_MAX = 400
"""Of a case and of a plan."""
MAILS = frozenset({"mail", "email", "e-mail"})
"""Types of targets that are mails."""
# What a system writes for itself beside every change: no news to whoever reads what was changed.
BOOKKEEPING = frozenset(
    {"updated_at", "updated_by", "modified_at", "modified_by", "version", "revision", "etag"}
)
# Where HTTP clients say it (httpx, requests); the call itself is told beside the error.
ADDRESSES = re.compile(r"\s+(?:for url:?|for more information check:)\s+\S+", re.IGNORECASE)


def shortened(text: str, characters_max: int) -> str:
    """At most so many characters, and a sign where something was cut."""
    text = formatting.plain(text)
    return text if len(text) <= characters_max else text[: characters_max - 1].rstrip() + "…"


def plural(number: int, one: str) -> str:
    """`2 flights`, `1 flight`."""
    return f"{number} {one if number == 1 else one + 's'}"


def many(number: int, one: str) -> str:
    """`1 201 actions`: as `plural`, of what may be thousands, for a page."""
    return formatting.count(number) + plural(number, one).removeprefix(str(number))


def listed(items: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`, `a, b and 4 more`."""
    named = list(items)
    if len(named) > NAMED_MAX:
        named = [*named[: NAMED_MAX - 1], f"{len(items) - NAMED_MAX + 1} more"]
    if len(named) < 2:  # noqa: PLR2004 - one item needs no “and”
        return "".join(named)
    return f"{', '.join(named[:-1])} and {named[-1]}"


def target_words(target_type: str, target_id: str) -> str:
    """`reservation XEHM4B`; a type in the plural (a table's name) is made singular."""
    is_plain = formatting.is_identifier(target_type)
    kind = singular(target_type) if is_plain else formatting.quoted(target_type)
    return f"{kind} {formatting.named(target_id)}".strip()


def singular(name: str) -> str:
    name = name.replace("_", " ").strip()
    if name.endswith("ies") and len(name) > len("ties"):
        return name[:-3] + "y"
    if name.endswith("s") and not name.endswith(("ss", "us", "is")) and len(name) > len("sms"):
        return name[:-1]
    return name


def changed_fields(before: Any, after: Any) -> list[str]:
    """Names of the top-level fields that differ; a field present on one side only differs.

    Bookkeeping is named only where nothing else differs.
    """
    if not isinstance(before, dict) or not isinstance(after, dict):
        return []
    if is_ref(before) or is_ref(after):  # too large to be looked into, or gone
        return []
    missing = object()
    found = sorted(
        str(name)
        for name in {*before, *after}
        if before.get(name, missing) != after.get(name, missing)
    )
    return [name for name in found if name not in BOOKKEEPING] or found


def without_addresses(error: str) -> str:
    """`Server error '504 No'`, of a message that goes on with addresses."""
    return ADDRESSES.sub("", error)


def seen_words(saw: Any) -> str:
    """What a probe saw, as it stands beside its finding: a single sentence without its JSON."""
    if isinstance(saw, dict) and set(saw) == {"detail"}:
        return formatting.quoted(str(saw["detail"])) if saw["detail"] else ""
    return json.dumps(saw, default=str, ensure_ascii=False) if saw else ""


def capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]
