"""Wording: headline and first sentence of a correction, by template from its facts."""

from __future__ import annotations

from typing import Any

from recovery.corrections.facts import friendly
from recovery.facts.words import listed, plural, singular

TITLE_CHARACTERS_MAX = 200


def title(facts: dict[str, Any]) -> str:
    """`We changed your reservation by mistake, and put it back`"""
    items = facts["items"]
    outcomes = {one["outcome"] for one in items}
    things = _things(items)
    if not items:
        return "Nothing of yours was changed"
    if outcomes == {"corrected"}:
        return "We sent you something by mistake"
    if outcomes <= {"restored"}:
        return _cut(f"We changed {things} by mistake, and put it back")
    if outcomes <= {"restored", "compensated", "corrected"}:
        return _cut(f"We made a mistake with {things}, and put it right")
    if outcomes & {"restored", "compensated", "corrected", "repaired"}:
        return _cut(f"We made a mistake with {things}, and put part of it right")
    return _cut(f"We made a mistake with {things}")


def lead(facts: dict[str, Any]) -> str:
    """Two or three sentences: what our assistant did, what we did about it, and why."""
    items = facts["items"]
    if not items:
        return "Our assistant worked on your request and changed nothing."
    touched = list(
        dict.fromkeys(friendly(one["target"]["type"], one["target"]["id"]) for one in items)
    )
    parts = [f"While it worked on a request, our assistant made a mistake with {listed(touched)}."]
    parts.append(facts["why"])
    done = [one for one in items if one["outcome"] in {"restored", "compensated", "corrected"}]
    lasting = sum(one["outcome"] == "corrected" for one in items)
    if len(done) == len(items) and not lasting:
        parts.append("All of it has been put right.")
    elif lasting == len(items):
        parts.append("It could not be undone, so a correction was sent.")
    elif len(done) == len(items):
        parts.append(
            f"{lasting} of {plural(len(items), 'change')} could not be undone and was corrected;"
            " the rest has been put right."
        )
    elif done:
        parts.append(f"{len(done)} of {plural(len(items), 'change')} have been put right.")
    return " ".join(parts)


def _things(items: list[dict[str, Any]]) -> str:
    kinds = {one["target"]["type"] for one in items}
    names = {(one["target"]["type"], one["target"]["id"]) for one in items}
    if len(kinds) != 1:
        return "some of your details"
    kind = singular(kinds.pop()) or "details"
    return f"your {kind}" if len(names) == 1 else f"{len(names)} of your {_plural(kind)}"


def _plural(kind: str) -> str:
    return plural(2, kind).partition(" ")[2]


def _cut(text: str) -> str:
    return text[:TITLE_CHARACTERS_MAX]
