"""Counting: how many cases a query means, up to a limit; exactly those that its list shows."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache
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

# What every desk counts beside its queue, each time it is looked at. Put together anew by the ORM
# they took a fifth of the queue's time, so what it makes of them is remembered, with blanks.
BY_HEART = frozenset({"", "is:mine", "is:unclaimed", "is:unknown", "is:irreversible", "is:overdue"})


class Blank(Enum):
    """Where a remembered statement takes what differs from one time to the next."""

    WORKSPACE = -1
    PERSON = -2
    NOW = datetime.max.replace(tzinfo=UTC)


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
    if by and text in BY_HEART:
        sql, params = _by_heart(text)
        now = {Blank.WORKSPACE: workspace.pk, Blank.PERSON: by.pk, Blank.NOW: clock.now()}
        given = [now[one] if isinstance(one, Blank) else one for one in params]
        return f"(SELECT count(*) FROM ({sql} LIMIT %s) counted)", (*given, limit)  # noqa: S608
    cases = matching(workspace, parse(text), by=by, everything=everything)
    sql, params = cases.order_by().values("pk")[:limit].query.sql_with_params()
    return f"(SELECT count(*) FROM ({sql}) counted)", tuple(params)  # noqa: S608 - the ORM's


@cache
def _by_heart(text: str) -> tuple[str, tuple[Any, ...]]:
    """What the ORM makes of a query that always reads the same, with blanks among its values."""
    cases = matching(
        Workspace(pk=Blank.WORKSPACE.value), parse(text), by=User(pk=Blank.PERSON.value),
        now=Blank.NOW.value,
    )  # fmt: skip
    sql, params = cases.order_by().values("pk").query.sql_with_params()
    blanks: dict[Any, Blank] = {one.value: one for one in Blank}
    return sql, tuple(blanks.get(param, param) for param in params)
