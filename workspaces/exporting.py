"""A list as a file: the same address with `format=csv` or `format=json`, so the same query, the
same permission, and through the functions that say what of a row its reader is shown.

Which rows are in it is settled first; they are read and sent in batches, however many there are.
Before the first goes out, it is on the record who took which list, and how it was narrowed down.
"""

import csv
import io
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, StreamingHttpResponse

from amends.protocol.vocabulary import EventType
from workspaces import outbox
from workspaces.models import User, Workspace

ROWS_MAX = 100_000
CUT = "Only the first {:,} rows are in this file: narrow the list down for the others."
BATCH = 500
FILTER_CHARACTERS_MAX = 300
TYPES = {"csv": "text/csv; charset=utf-8", "json": "application/json"}
# A spreadsheet takes a cell that begins so for a formula; full-width signs are the same to some.
# One that parts cells at semicolons or tabs begins a cell there, and a line after a line break.
# Some cut blanks off its beginning.
FORMULA = re.compile(r"\A(?=[\t\r\n])|((?:\A|[;\t\r\n])[ \u00a0]*)(?=[=+\-@＝＋－＠])")


Columns = Mapping[str, str | Callable[[Any], Any]]
"""Each by its name: an attribute's, or what makes a value of a row."""

Table = tuple[QuerySet[Any] | Sequence[Any], Columns]


Cleaner = Callable[[Any], Any]
"""What each value of a file goes through for its reader: see `cleaner`."""

Cleaning = TypeVar("Cleaning", bound=Callable[[User, Workspace], Cleaner])
_cleaning: list[Callable[[User, Workspace], Cleaner]] = []


def cleans(make: Cleaning) -> Cleaning:
    """Register what says for a reader how each value is cleaned: one does, the ledger's."""
    _cleaning.append(make)
    return make


def cleaner(person: User, workspace: Workspace) -> Cleaner:
    """What a value goes through before this person is given it in a file of this workspace."""
    [make] = _cleaning
    return make(person, workspace)


class Export(NamedTuple):
    """What goes into the file; `read` gives, for keys of rows, their values by `columns`."""

    name: str
    columns: Sequence[str]
    keys: Sequence[int]
    read: Callable[[Sequence[int]], Iterable[Sequence[Any]]]
    clean: Cleaner


def is_asked(request: HttpRequest) -> bool:
    return request.GET.get("format") in TYPES


def links(request: HttpRequest, table: str = "") -> list[dict[str, str]]:
    """Where the list that the address asks for, or this table of its page, is had as a file."""
    kept = _narrowed(request) | ({"table": table} if table else {})
    return [
        {"name": kind.upper(), "url": f"?{urlencode(kept | {'format': kind})}"} for kind in TYPES
    ]


def _narrowed(request: HttpRequest) -> dict[str, Any]:
    """What the address says of the list, but for the place within it."""
    beside = {"after", "before", "peek", "format"}
    return {name: value for name, value in request.GET.items() if name not in beside}


def _record(request: HttpRequest, export: Export, rows: int) -> None:
    """Who took how much of which list; its workspace is the address's, where its view found it."""
    asked = _narrowed(request).items()
    told = ", ".join(f"{name}: {value}" for name, value in asked if value and name != "table")
    match = request.resolver_match
    assert match is not None  # noqa: S101 - a view is found by its address
    assert isinstance(request.user, User)  # noqa: S101 - nobody else sees a list
    outbox.record(
        Workspace.objects.get(slug=match.kwargs["workspace"]),
        EventType.DATA_EXPORTED,
        by=request.user,
        data={"list": export.name, "format": request.GET["format"].upper(), "rows": rows}
        | ({"filter": told[:FILTER_CHARACTERS_MAX]} if told else {}),
    )


def keys(rows: QuerySet[Any]) -> list[int]:
    """Which rows are in the file, in the order of the list; one more where there are too many."""
    return list(rows.values_list("pk", flat=True)[: ROWS_MAX + 1])


def in_order(rows: QuerySet[Any], found: Sequence[int]) -> list[Any]:
    """The rows of these keys, in the order of the keys; what is gone by now is left out."""
    by_key = rows.in_bulk(list(found))
    return [by_key[key] for key in found if key in by_key]


def values(rows: Iterable[Any], columns: Columns) -> Iterator[tuple[Any, ...]]:
    """Of each row, what stands in its columns."""
    read = [attrgetter(one) if isinstance(one, str) else one for one in columns.values()]
    return (tuple(value(row) for value in read) for row in rows)


def sheet(
    request: HttpRequest,
    name: str,
    rows: QuerySet[Any] | Sequence[Any],
    columns: Columns,
    clean: Cleaner,
) -> StreamingHttpResponse:
    """The file of a list by its columns, each an attribute's name or what makes a value of a row.
    Rows of the database are read in batches; of a list that is short they are given.
    """
    take: Callable[[Sequence[int]], Iterable[Any]]
    if isinstance(rows, QuerySet):
        chosen, take = keys(rows), partial(in_order, rows)
    else:
        chosen, take = list(range(len(rows))), partial(map, rows.__getitem__)

    def read(found: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        return values(take(found), columns)

    return answer(request, Export(name, tuple(columns), chosen, read, clean))


def table(
    request: HttpRequest, tables: Mapping[str, Table], clean: Cleaner
) -> StreamingHttpResponse:
    """The file of that table of a page which its address names, of the first without a name."""
    name = request.GET.get("table", next(iter(tables)))
    if name not in tables:
        raise Http404("This page has no such table.")
    return sheet(request, name, *tables[name], clean)


def answer(request: HttpRequest, export: Export) -> StreamingHttpResponse:
    """The file, on the record and sent as it is read. One that is cut says so in its name and
    in its last row.
    """
    kind = request.GET["format"]
    name, cut = export.name, ""
    if len(export.keys) > ROWS_MAX:
        name, cut = f"{name}-first-{ROWS_MAX}", CUT.format(ROWS_MAX)
    shown = export.keys[:ROWS_MAX]
    _record(request, export, len(shown))
    batches = [shown[at : at + BATCH] for at in range(0, len(shown), BATCH)]
    write = _csv if kind == "csv" else _json
    parts = write(export, batches, cut)
    sent: Iterator[str] | AsyncIterator[str] = parts
    if isinstance(request, ASGIRequest):
        sent = _aside(parts)
    response = StreamingHttpResponse(sent, content_type=TYPES[kind])
    response["Content-Disposition"] = f'attachment; filename="{name}.{kind}"'
    response["Cache-Control"] = "private, no-store"
    return response


async def _aside(parts: Iterator[str]) -> AsyncIterator[str]:
    """The same, read in the thread of the request, so that the process serves others meanwhile."""
    while (part := await sync_to_async(lambda: next(parts, None))()) is not None:
        yield part


def _csv(export: Export, batches: Iterable[Sequence[int]], cut: str) -> Iterator[str]:
    yield _lines([export.columns])
    for batch in batches:
        yield _lines([[_cell(export.clean(value)) for value in row] for row in export.read(batch)])
    if cut:
        yield _lines([[cut]])


def _lines(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return FORMULA.sub(r"\1'", value)
    return value.isoformat() if hasattr(value, "isoformat") else value


def _json(export: Export, batches: Iterable[Sequence[int]], cut: str) -> Iterator[str]:
    """One array, a row on each line."""
    before = "[\n"
    for batch in batches:
        for row in export.read(batch):
            said = dict(zip(export.columns, map(export.clean, row), strict=True))
            yield before + json.dumps(said, cls=DjangoJSONEncoder, ensure_ascii=False)
            before = ",\n"
    if cut:
        yield before + json.dumps({"cut": cut})
    yield "\n]\n" if before == ",\n" else "[]\n"
