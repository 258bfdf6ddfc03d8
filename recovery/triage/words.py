"""Words: how facts become plain sentences. What agents wrote is cleaned and cut first."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

NAMED_MAX = 3
INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})


def clean(text: str) -> str:
    """One line without control, invisible and bidirectional characters."""
    visible = (" " if unicodedata.category(one) in INVISIBLE else one for one in text)
    return " ".join("".join(visible).split())


def shortened(text: str, characters_max: int) -> str:
    """At most so many characters, and a sign where something was cut."""
    text = clean(text)
    return text if len(text) <= characters_max else text[: characters_max - 1].rstrip() + "…"


def plural(number: int, one: str, many: str = "") -> str:
    """`2 flights`, `1 flight`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def listed(items: Sequence[str], *, most: int = NAMED_MAX) -> str:
    """`a`, `a and b`, `a, b and c`, `a, b and 4 more`."""
    named = list(items)
    if len(named) > most:
        named = [*named[: most - 1], f"{len(items) - most + 1} more"]
    if len(named) < 2:  # noqa: PLR2004 - one item needs no “and”
        return "".join(named)
    return f"{', '.join(named[:-1])} and {named[-1]}"


def target_words(target_type: str, target_id: str) -> str:
    """`reservation XEHM4B`; a type in the plural (a table's name) is made singular."""
    return clean(f"{singular(target_type)} {target_id}").strip()


def singular(name: str) -> str:
    name = name.replace("_", " ").strip()
    if name.endswith("ies") and len(name) > len("ties"):
        return name[:-3] + "y"
    if name.endswith("s") and not name.endswith(("ss", "us", "is")):
        return name[:-1]
    return name


def changed_fields(before: Any, after: Any) -> list[str]:
    """Names of the top-level fields that differ; a field present on one side only differs."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return []
    missing = object()
    return sorted(
        str(name)
        for name in {*before, *after}
        if before.get(name, missing) != after.get(name, missing)
    )


def capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]
