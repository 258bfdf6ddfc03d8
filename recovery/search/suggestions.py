"""Suggestions while somebody types a query: keys, then the values that a key can have here."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.models import Case, CaseOutcome, CaseState
from recovery.search.language import KEYS
from recovery.search.terms import HAS, IS, RISKS, WITHOUT_EFFECTS
from workspaces.models import Agent, Workspace

SUGGESTIONS_MAX = 10
LOOKED_AT_MAX = 2_000
"""Values are gathered from the newest open cases, so that typing stays quick in a large queue."""

FIXED = {
    "is": tuple(IS),
    "has": tuple(HAS),
    "risk": RISKS,
    "state": tuple(CaseState.values),
    "outcome": tuple(CaseOutcome.values),
    "age": ("<1h", "<24h", "<7d", ">24h"),
    "opened": ("<24h", "<7d"),
    "claimed": ("me",),
}
COLUMNS = {
    "tool": "failed_tool",
    "target": "failed_target",
    "customer": "customer",
    "model": "run__model",
    "cause": "cause__fingerprint",
}


HINTS = {
    "is": "open, mine, unknown, overdue …",
    "has": "approval, comment, drift",
    "tool": "the tool that failed",
    "target": "what it was called on",
    "agent": "who acted",
    "model": "which model it used",
    "customer": "whom it concerns",
    "run": "a run's id, * for anything",
    "state": "open, waiting, recovering …",
    "cause": "like failures, by fingerprint",
    "claimed": "me, or a name",
    "connector": "a connection of its plans",
    "opened": "when it came: <24h, a day",
    "age": "since it failed: <24h, >7d",
    "amount": "money: >1000",
    "risk": "low to critical, >medium",
    "reason": "what opened it",
    "outcome": "how it was closed",
}


VALUES = {
    "is": {
        "open": "not closed yet",
        "closed": "with an outcome",
        "mine": "you hold its claim",
        "unclaimed": "nobody holds its claim",
        "unknown": "an outcome is not known",
        "irreversible": "something cannot be undone",
        "overdue": "past its time",
        "paused": "its agent, tool or target is stopped",
        WITHOUT_EFFECTS: "failed, and nothing took effect",
    },
    "has": {
        "approval": "a plan waits for people",
        "comment": "somebody wrote something",
        "drift": "a target was changed since",
    },
}


@dataclass(frozen=True, slots=True)
class Suggestion:
    """`text` replaces the query from `start` to the cursor."""

    text: str
    start: int
    hint: str = ""


def suggest(workspace: Workspace, text: str, cursor: int | None = None) -> list[Suggestion]:
    """What could stand where the cursor is; never raises."""
    typed = text[: len(text) if cursor is None else max(cursor, 0)]
    start = max(typed.rfind(" "), typed.rfind("(")) + 1
    if typed[start:].startswith("-"):
        start += 1
    key, colon, value = typed[start:].partition(":")
    if not colon:
        asks = bool(key) or not text.strip()  # an empty field shows what there is
        keys = [f"{name}:" for name in KEYS if name.startswith(key.lower()) and asks]
        shown = keys[:SUGGESTIONS_MAX] if key else keys
        return [Suggestion(name, start, HINTS.get(name[:-1], "")) for name in shown]
    last = value.rpartition(",")[2]
    place = len(typed) - len(last)
    known = [
        name for name in _values(workspace, key.lower()) if name.lower().startswith(last.lower())
    ]
    hints = VALUES.get(key.lower(), {})
    return [
        Suggestion(_quoted(name), place, hints.get(name, "")) for name in known[:SUGGESTIONS_MAX]
    ]


def _values(workspace: Workspace, key: str) -> list[str]:
    if key in FIXED:
        return list(FIXED[key])
    if key == "agent":
        return list(
            Agent.objects.filter(workspace=workspace)
            .order_by("name")
            .values_list("name", flat=True)
        )
    if key not in COLUMNS:
        return []
    newest = (
        Case.objects.filter(workspace=workspace, without_effects=False)
        .exclude(state=CaseState.CLOSED)
        .order_by("-failed_at", "-id")
        .values_list(COLUMNS[key], flat=True)[:LOOKED_AT_MAX]
    )
    return sorted({value for value in newest if value})


def _quoted(value: str) -> str:
    return f'"{value}"' if any(mark in value for mark in " ,()") else value
