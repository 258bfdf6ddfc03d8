"""Suggestions: what could stand in a query where the cursor is."""

from __future__ import annotations

from dataclasses import dataclass

from ledger import disclosure
from recovery.search.keys import KEYS
from workspaces.models import User, Workspace


@dataclass(frozen=True, slots=True)
class QuerySuggestion:
    """`text` replaces the query from `start` to the cursor."""

    text: str
    start: int
    hint: str = ""


SUGGESTIONS_MAX = 10


def suggest(
    workspace: Workspace, text: str, cursor: int | None = None, *, by: User
) -> list[QuerySuggestion]:
    """What could stand where the cursor is; never raises."""
    typed = text[: len(text) if cursor is None else max(cursor, 0)]
    start = max(typed.rfind(" "), typed.rfind("(")) + 1
    if typed[start:].startswith("-"):
        start += 1
    name, colon, value = typed[start:].partition(":")
    if not colon:
        asks = bool(name) or not text.strip()  # an empty field shows what there is
        found = [
            QuerySuggestion(f"{one}:", start, key.hint)
            for one, key in KEYS.items()
            if asks and one.startswith(name.lower())
        ]
        return found[:SUGGESTIONS_MAX] if name else found
    key = KEYS.get(name.lower())
    if key is None:
        return []
    last = value.rpartition(",")[2]
    known = [one for one in key.offered(workspace) if one.lower().startswith(last.lower())]
    if not disclosure.sees(by, workspace):
        known = [one for one in known if not disclosure.holds_secret(one)]
    place = len(typed) - len(last)
    return [
        QuerySuggestion(_quoted(one), place, key.meaning(one)) for one in known[:SUGGESTIONS_MAX]
    ]


def _quoted(value: str) -> str:
    return f'"{value}"' if any(mark in value for mark in " ,()") else value
