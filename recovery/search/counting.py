"""Counting: how many cases a query means, up to a limit; exactly those that its list shows."""

from dataclasses import dataclass
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connection

from recovery.search.language import QueryError, parse
from recovery.search.lists import Found, matching
from workspaces import clock
from workspaces.models import User, Workspace

COUNT_MAX = 10_000
COUNT_OF_WORDS_MAX = 1_000
"""Where there are words, each case that they find is read to be counted."""

# What every desk counts beside its queue, each time it is looked at: what these queries mean, by
# heart, and what they are given. Put together by the ORM they took a fifth of the queue's time.
OPEN = "SELECT FROM recovery_case WHERE workspace_id = %s AND state <> 'closed'"
WRITTEN_OUT = {
    "": ("",),
    "is:mine": (" AND claimed_by_id = %s AND claimed_until > %s", "person", "now"),
    "is:unclaimed": (" AND (claimed_by_id IS NULL OR claimed_until <= %s)", "now"),
    "is:unknown": (" AND unknown_count > 0",),
    "is:irreversible": (" AND reversibility = 'irreversible'",),
    "is:overdue": (" AND due_at < %s", "now"),
}


@dataclass(frozen=True, slots=True)
class Count:
    number: int
    capped: bool

    def __str__(self) -> str:
        return f"{self.number:,}+" if self.capped else f"{self.number:,}"


def count(
    workspace: Workspace,
    text: str,
    *,
    by: User | None,
    everything: bool = False,
    found: Found | None = None,
) -> Count:
    """How many cases the list would show, up to a limit; `found` is a page of it, if at hand."""
    if found is not None and found.is_whole:
        return Count(len(found.cases), capped=False)
    query = parse(text)
    limit = COUNT_OF_WORDS_MAX if query.has_text else COUNT_MAX
    try:
        sql, given = _counting(workspace, text, by=by, everything=everything, limit=limit + 1)
    except EmptyResultSet:
        return Count(0, capped=False)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {sql}", given)
        [number] = cursor.fetchone()
    return Count(min(number, limit), capped=number > limit)


def counts(
    workspace: Workspace, texts: list[str], *, by: User | None, limit: int
) -> list[int | None]:
    """How many cases each list would show, counted no further than `limit`; all in one statement.

    None where a text is no query, as a view may be that was saved before the language changed.
    """
    found: list[int | None] = [None] * len(texts)
    parts: dict[int, str] = {}
    given: list[Any] = []
    for at, text in enumerate(texts):
        try:
            parts[at], params = _counting(workspace, text, by=by, limit=limit)
        except QueryError:
            continue
        except EmptyResultSet:
            found[at] = 0
            continue
        given += params
    if parts:
        with connection.cursor() as cursor:
            cursor.execute("SELECT " + ", ".join(parts.values()), given)
            for at, number in zip(parts, cursor.fetchone(), strict=True):
                found[at] = number
    return found


def _counting(
    workspace: Workspace, text: str, *, by: User | None, everything: bool = False, limit: int
) -> tuple[str, tuple[Any, ...]]:
    """A count of what a query means as a part of a statement; raises QueryError, EmptyResultSet."""
    written = WRITTEN_OUT.get(text) if by else None
    if written:
        given = {"person": by.pk if by else None, "now": clock.now()}
        params = (workspace.pk, *(given[name] for name in written[1:]), limit)
        return f"(SELECT count(*) FROM ({OPEN}{written[0]} LIMIT %s) counted)", params  # noqa: S608
    cases = matching(workspace, parse(text), by=by, everything=everything)
    sql, params = cases.order_by().values("pk")[:limit].query.sql_with_params()
    return f"(SELECT count(*) FROM ({sql}) counted)", tuple(params)  # noqa: S608 - the ORM's
