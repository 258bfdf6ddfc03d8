"""Offers: what could stand in a query where somebody types."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from recovery.models import Case, CaseState
from workspaces.models import Agent, Workspace

OFFERED_FROM_MAX = 2_000
"""Values are gathered from the newest open cases, so that typing stays quick in a large queue."""

Offers = Callable[[Workspace], Iterable[str]]


def of_cases(column: str) -> Offers:
    def offer(workspace: Workspace) -> list[str]:
        newest = (
            Case.objects.filter(workspace=workspace, without_effects=False)
            .exclude(state=CaseState.CLOSED)
            .order_by("-failed_at", "-id")
            .values_list(column, flat=True)[:OFFERED_FROM_MAX]
        )
        found = {one for value in newest for one in (value if isinstance(value, list) else [value])}
        return sorted(found - {"", None})

    return offer


def agents(workspace: Workspace) -> Iterable[str]:
    agents = Agent.objects.filter(workspace=workspace)
    return agents.order_by("name").values_list("name", flat=True)


@dataclass(frozen=True, slots=True)
class QuerySuggestion:
    """`text` replaces the query from `start` to the cursor."""

    text: str
    start: int
    hint: str = ""


def quoted(value: str) -> str:
    return f'"{value}"' if any(mark in value for mark in " ,()") else value
