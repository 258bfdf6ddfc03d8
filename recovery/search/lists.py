"""Lists: what a query finds, a page at a time, by key and never by OFFSET, in an order that never
jumps; and what could stand in a query where the cursor is.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db.models import F, Q, QuerySet
from django.db.models.fields.tuple_lookups import TupleGreaterThan, TupleLessThan
from django.utils import timezone

from ledger import disclosure
from recovery.models import Case, CaseState
from recovery.search.keys import KEYS, SNOOZED, WITHOUT_EFFECTS, Key, QueryContext, condition, parse
from recovery.search.language import And, FieldTerm, Node, Not, Query, QueryError, asks_only
from recovery.search.offers import QuerySuggestion, quoted
from workspaces import clock, replica
from workspaces.models import User, Workspace

PAGE_CASES = 50
PAGE_CASES_MAX = 200
COUNT_MAX = 10_000
COUNT_OF_WORDS_MAX = 1_000
"""Where there are words or patterns, each case is read to be counted."""
NEIGHBOURS_BY_KEYS_MAX = 100
"""Where more fit, one is found soon on either side."""
RECENT_DAYS = 90
"""Closed cases and free text are searched this far back, unless the reader asks for all."""
AFTER_CHARACTERS_MAX = 400
SUGGESTIONS_MAX = 10
UNLISTED = (
    "search", "answered", "run__search", "run__on_behalf_of", "run__labels",
    "run__error", "run__flags", "run__goal", "run__summary", "run__request",
)  # fmt: skip
"""What no list shows and is large or has to be read anew as JSON; it is fetched where asked for."""


class BadPlace(ValueError):
    """We stopped because `after` is not a place that a page of this order gave out."""


@dataclass(frozen=True, slots=True)
class Order:
    """Columns of a total order, all in one direction, as an index holds them."""

    columns: tuple[str, ...]
    descending: bool = True


ORDERS = {
    "risk": Order(("risk_rank", "failed_at", "id")),
    "newest": Order(("failed_at", "id")),
    "due": Order(("due_at", "id"), descending=False),
    "window": Order(("undo_until", "id"), descending=False),
}
DEFAULT_ORDER = "risk"
NUMBERS = frozenset({"risk_rank", "id"})
"""Columns of an order that are no moments."""
LOOKED_FOR_BY = frozenset({"run", "customer", "claimed", "state", "outcome", "closed", "cause"})
"""Keys by which somebody looks for cases that they know: a snoozed one is found by them."""
READ = frozenset(
    {"tool", "failed_tool", "target", "model", "customer", "run", "amount"}
    | {"has", "connector", "started", "outcome"}
)
"""Keys that may fit few cases or many, wherever these stand in the list."""


@dataclass(frozen=True, slots=True)
class CasePage:
    """One page. `after` is the place behind its last case, empty where nothing follows; `number` is
    how many there are in all, where that is known.
    """

    cases: list[Case]
    query: Query
    after: str
    order: str
    is_cut: bool = False
    number: CappedCount | None = None


def matching(
    workspace: Workspace,
    query: Query,
    *,
    by: User | None,
    everything: bool = False,
    now: datetime | None = None,
) -> QuerySet[Case]:
    """The cases that a query means. Without a word on the state, only those that are not closed;
    failures that did nothing only where the query asks for them.
    """
    return _meant(query, query.tree, _reader(workspace, by, now), everything=everything)


def _reader(workspace: Workspace, by: User | None, now: datetime | None = None) -> QueryContext:
    """A day is one of the page's clock."""
    return QueryContext(by, now or timezone.localtime(clock.now()), workspace)


def _meant(
    query: Query, tree: Node | None, reader: QueryContext, *, everything: bool
) -> QuerySet[Case]:
    """The cases that `tree` means among those that a list of the whole query may show."""
    found = Case.objects.filter(workspace=reader.workspace)
    if tree is not None:
        found = found.filter(condition(tree, reader))
    if not asks_for_closed(query):
        found = found.exclude(state=CaseState.CLOSED)
    if not _says(query, WITHOUT_EFFECTS):
        found = found.filter(without_effects=False)
    if not _shows_snoozed(query):
        found = found.filter(Q(snoozed_until=None) | Q(snoozed_until__lte=reader.now))
    if is_cut(query, everything=everything):
        found = found.filter(failed_at__gt=reader.now.astimezone(UTC) - timedelta(RECENT_DAYS))
    return found


IN_EACH = frozenset({"agent", "risk", "age", "failed"})
HELD_OF_OPEN = (
    IN_EACH | {"target", "failed_tool", "tool", "amount"},  # case_open_as_called
    IN_EACH | {"run", "model", "customer"},  # case_open_as_named
)
HELD_OF_CLOSED = (  # case_closed_as_called
    IN_EACH | {"run", "model", "amount", "outcome", "closed", "reversibility"},
)
"""Keys of which an index has all that is asked; of tools and runs a pattern."""


def _narrowed(
    cases: QuerySet[Case], query: Query, reader: QueryContext, *, everything: bool
) -> QuerySet[Case]:
    """The same cases. What an index alone can say is asked of it first: where few fit, only these
    are read for what is asked besides. Their rows are wide.
    """
    is_plain = not _says(query, WITHOUT_EFFECTS)
    parts = query.tree.parts if isinstance(query.tree, And) and is_plain else ()
    ends = [one for one in parts if asks_only(one, {"closed", "outcome"}, {"closed", "late"})]
    of_closed = not all(isinstance(one, Not) for one in ends)
    words = {"closed"} | ({"late", "irreversible"} if of_closed else {"open", "mine", "unclaimed"})
    says_open = any(
        isinstance(one, FieldTerm) and one.key == "state"
        and all(value.text.lower() != CaseState.CLOSED for value in one.values) for one in parts
    )  # fmt: skip
    for held in HELD_OF_CLOSED if of_closed else HELD_OF_OPEN:
        mine = tuple(one for one in parts if asks_only(one, held, words))
        if len(mine) < len(parts) and any(asks_only(one, held & READ) for one in mine):
            of_index = _meant(query, And(mine), reader, everything=everything)
            of_index = of_index.exclude(state=CaseState.CLOSED) if says_open else of_index
            keys = list(of_index.values_list("pk", flat=True)[: COUNT_OF_WORDS_MAX + 1])
            cases = cases.filter(pk__in=keys) if len(keys) <= COUNT_OF_WORDS_MAX else cases
    return cases


def asks_for_closed(query: Query) -> bool:
    """Whether the query itself says which states it wants."""
    return any(key.says_state for key in _keys(query)) or _says(query, "open", "closed", "late")


def _keys(query: Query) -> list[Key]:
    return [KEYS[term.key] for term in query.terms if isinstance(term, FieldTerm)]


def _says(query: Query, *words: str) -> bool:
    """Whether `is:` is said with one of these, wherever in the query."""
    return any(
        term.key == "is" and any(value.text.lower() in words for value in term.values)
        for term in query.terms
        if isinstance(term, FieldTerm)
    )


def _is_read(query: Query) -> bool:
    """Whether cases are read one after the other for what fits: nothing puts it in order."""
    return query.has_text or _has_key(query, READ) or _says(query, "late")


def _shows_snoozed(query: Query) -> bool:
    """Whether what was put off is in the list, too: where cases are looked for, not worked off."""
    if query.has_text or _says(query, SNOOZED, "open", "closed", "late", "mine"):
        return True
    return _has_key(query, LOOKED_FOR_BY)


def _has_key(query: Query, keys: Collection[str]) -> bool:
    return any(term.key in keys for term in query.terms if isinstance(term, FieldTerm))


def is_cut(query: Query, *, everything: bool) -> bool:
    """Whether the list says "Searched the last 90 days; search all"."""
    if everything or any(key.bounds_time for key in _keys(query)):
        return False
    return query.has_text or asks_for_closed(query)


def find(
    workspace: Workspace,
    text: str,
    *,
    by: User | None,
    order: str = DEFAULT_ORDER,
    after: str = "",
    limit: int = PAGE_CASES,
    everything: bool = False,
    columns: Sequence[str] = (),
) -> CasePage:
    """A page of the cases that `text` means; raises QueryError or BadPlace.

    `columns` are all that the caller shows, where it shows few.
    """
    query = parse(text)
    order = order if order in ORDERS else DEFAULT_ORDER
    limit = min(max(limit, 1), PAGE_CASES_MAX)
    reader = _reader(workspace, by)
    cases, number = _looked_up(query, reader, most=COUNT_OF_WORDS_MAX, everything=everything)
    cases = _behind(cases, ORDERS[order], after).order_by(*_ordering(ORDERS[order]))
    if number is not None and number.capped:  # an index says which they are, without the rows
        keys = list(cases.values_list("pk", flat=True)[: limit + 1])
        cases = Case.objects.filter(pk__in=keys).order_by(*_ordering(ORDERS[order]))
    page = list(_with(cases, columns)[: limit + 1])
    page, more = page[:limit], len(page) > limit
    for case in page:
        case.workspace = workspace  # a line's addresses begin with it
    return CasePage(
        cases=page,
        query=query,
        after=place_of(page[-1], order) if more else "",
        order=order,
        is_cut=is_cut(query, everything=everything),
        number=number if more or after else CappedCount(len(page), capped=False),
    )


def _looked_up(
    query: Query, reader: QueryContext, *, most: int, everything: bool = False
) -> tuple[QuerySet[Case], CappedCount | None]:
    """What it means; by keys where at most so many hold the words or fit the pattern, and how many.

    Of a word that it does not know PostgreSQL takes it that one case in 200 holds it. To show the
    first fifty it then walks the list in its order, through all cases where none does.
    """
    cases = _meant(query, query.tree, reader, everything=everything)
    if not _is_read(query):
        return cases, None
    found = _narrowed(cases, query, reader, everything=everything)
    keys = list(found.values_list("pk", flat=True)[: most + 1])
    if len(keys) > most:
        return cases, CappedCount(most, capped=True)
    return cases.filter(pk__in=keys), CappedCount(len(keys), capped=False)


def every(
    workspace: Workspace, text: str, *, by: User | None, order: str, everything: bool
) -> QuerySet[Case]:
    """All cases that `text` means, in the order of the list; raises QueryError."""
    cases = matching(workspace, parse(text), by=by, everything=everything)
    return cases.order_by(*_ordering(ORDERS.get(order, ORDERS[DEFAULT_ORDER])))


def _with(cases: QuerySet[Case], columns: Sequence[str]) -> QuerySet[Case]:
    if not columns:
        return cases.select_related("run", "agent", "cause", "claimed_by").defer(*UNLISTED)
    tables = {column.partition("__")[0] for column in columns if "__" in column}
    places = {column for order in ORDERS.values() for column in order.columns}
    return cases.select_related(*sorted(tables)).only(*columns, *places)


def neighbours(
    workspace: Workspace,
    case: Case,
    text: str,
    *,
    by: User | None,
    order: str,
    everything: bool = False,
) -> tuple[Case | None, Case | None]:
    """The cases just above and just below in the list that `text` means; raises QueryError.

    A case that has left the list meanwhile still has its place, so its neighbours are found.
    """
    reader, most = _reader(workspace, by), NEIGHBOURS_BY_KEYS_MAX
    listed, _ = _looked_up(parse(text), reader, most=most, everything=everything)
    listed = listed.only("pk")
    order = order if order in ORDERS else DEFAULT_ORDER
    place = place_of(case, order)
    above = _ahead(listed, ORDERS[order], place).first()
    below = _behind(listed, ORDERS[order], place).order_by(*_ordering(ORDERS[order])).first()
    return above, below


def place_of(case: Case, order: str) -> str:
    """The place of a case in an order, to be given back as `after`."""
    values = [getattr(case, column) for column in ORDERS[order].columns]
    plain = [value.isoformat() if isinstance(value, datetime) else value for value in values]
    return base64.urlsafe_b64encode(json.dumps(plain).encode()).decode().rstrip("=")


def _place(order: Order, after: str) -> tuple[Any, ...]:
    try:
        padded = after[:AFTER_CHARACTERS_MAX] + "=" * (-len(after) % 4)
        values = json.loads(base64.urlsafe_b64decode(padded))
        return tuple(
            _whole(value) if column in NUMBERS or value is None else datetime.fromisoformat(value)
            for column, value in zip(order.columns, values, strict=True)
        )
    except (ValueError, TypeError, binascii.Error) as wrong:
        raise BadPlace("This is not a place in the list.") from wrong


def _whole(value: Any) -> int | None:
    if value is not None and (not isinstance(value, int) or abs(value) >= 2**63):
        raise ValueError(value)
    return value


def _behind(cases: QuerySet[Case], order: Order, after: str) -> QuerySet[Case]:
    if not after:
        return cases
    place = _place(order, after)
    columns = tuple(F(column) for column in order.columns)
    if order.descending:
        return cases.filter(TupleLessThan(columns, place))
    first = order.columns[0]  # nulls stand last, and compare with nothing
    if place[0] is None:
        return cases.filter(Q(**{f"{first}__isnull": True}), id__gt=place[-1])
    return cases.filter(Q(TupleGreaterThan(columns, place)) | Q(**{f"{first}__isnull": True}))


def _ahead(cases: QuerySet[Case], order: Order, place: str) -> QuerySet[Case]:
    """What stands before the place, the nearest first."""
    values, first = _place(order, place), order.columns[0]
    columns = tuple(F(column) for column in order.columns)
    if order.descending:
        return cases.filter(TupleGreaterThan(columns, values)).order_by(*order.columns)
    nearest: list[Any] = [F(first).desc(nulls_first=True), "-id"]
    if values[0] is None:
        known = Q(**{f"{first}__isnull": False})
        return cases.filter(known | Q(id__lt=values[-1])).order_by(*nearest)
    return cases.filter(TupleLessThan(columns, values)).order_by(*nearest)


def _ordering(order: Order) -> list[str]:
    return [f"-{column}" if order.descending else column for column in order.columns]


# Counting: how many cases a query means, up to a limit; exactly those that its list shows.

# What every desk counts beside its queue, each time it is looked at. Put together anew by the ORM
# they took a fifth of the queue's time, so what it makes of them is remembered, with blanks.
BY_HEART = frozenset(
    {"", "is:mine", "is:unclaimed", "is:unknown", "is:irreversible", "is:overdue"}
    | {f"is:{WITHOUT_EFFECTS}"}
)


class Placeholder(Enum):
    """Where a remembered statement takes what differs from one time to the next."""

    WORKSPACE = -1
    PERSON = -2
    NOW = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CappedCount:
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
    found: CasePage | None = None,
    counted: int | None = None,
) -> CappedCount:
    """How many cases the list would show, up to a limit; `found` is a page of it, if at hand, and
    `counted` what `counts` has said of it as `shown`.
    """
    if found is not None and found.number is not None:
        return found.number
    limit = _limit(text)
    if counted is not None:
        return CappedCount(min(counted, limit), capped=counted > limit)
    try:
        sql, given = _counting(workspace, text, by=by, everything=everything, limit=limit + 1)
    except EmptyResultSet:
        return CappedCount(0, capped=False)
    with replica.connection().cursor() as cursor:
        cursor.execute(f"SELECT {sql}", given)
        [number] = cursor.fetchone()
    return CappedCount(min(number, limit), capped=number > limit)


def _limit(text: str) -> int:
    return COUNT_OF_WORDS_MAX if _is_read(parse(text)) else COUNT_MAX


def counts(
    workspace: Workspace, texts: list[str], *, by: User | None, limit: int, shown: str | None = None
) -> list[int | None]:
    """How many cases each list would show, counted no further than `limit`, or than `count` counts
    the one that is `shown`; all in one statement.

    None where a text is no query, as a view may be that was saved before the language changed.
    """
    found: list[int | None] = [None] * len(texts)
    parts: dict[int, str] = {}
    given: list[Any] = []
    for at, text in enumerate(texts):
        try:
            most = _limit(text) + 1 if text == shown else limit
            parts[at], params = _counting(workspace, text, by=by, limit=most)
        except (QueryError, EmptyResultSet) as none:
            found[at] = 0 if isinstance(none, EmptyResultSet) else None
            continue
        given += params
    if parts:
        with replica.connection().cursor() as cursor:
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
        now = {
            Placeholder.WORKSPACE: workspace.pk,
            Placeholder.PERSON: by.pk,
            Placeholder.NOW: clock.now(),
        }
        given = [now[one] if isinstance(one, Placeholder) else one for one in params]
        return f"(SELECT count(*) FROM ({sql} LIMIT %s) counted)", (*given, limit)  # noqa: S608
    query, reader = parse(text), _reader(workspace, by)
    cases = _meant(query, query.tree, reader, everything=everything)
    cases = _narrowed(cases, query, reader, everything=everything)
    sql, params = cases.values("pk")[:limit].query.sql_with_params()
    return f"(SELECT count(*) FROM ({sql}) counted)", tuple(params)  # noqa: S608 - the ORM's


@cache
def _by_heart(text: str) -> tuple[str, tuple[Any, ...]]:
    """What the ORM makes of a query that always reads the same, with blanks among its values."""
    cases = matching(
        Workspace(pk=Placeholder.WORKSPACE.value), parse(text),
        by=User(pk=Placeholder.PERSON.value), now=Placeholder.NOW.value,
    )  # fmt: skip
    sql, params = cases.order_by().values("pk").query.sql_with_params()
    blanks: dict[Any, Placeholder] = {one.value: one for one in Placeholder}
    return sql, tuple(blanks.get(param, param) for param in params)


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
        QuerySuggestion(quoted(one), place, key.meaning(one)) for one in known[:SUGGESTIONS_MAX]
    ]
