"""Paging by keys: a page starts after the last row seen, so page 40,000 costs what page 1 costs."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest

from workspaces import formatting

ROWS_A_PAGE = 50


def page_of(
    request: HttpRequest, rows: Sequence[Any], key: Any, *, word: str = "shown"
) -> tuple[list[Any], dict[str, str]]:
    """Rows of this page and what parts/pager.html needs; `rows` hold one more than a page.

    `key(row)` is the text after which the next page starts.
    """
    shown = list(rows[:ROWS_A_PAGE])
    has_more = len(rows) > ROWS_A_PAGE
    label = f"{formatting.count(len(shown))} {word}"
    newer = _url(request, None) if request.GET.get("after") else ""
    older = _url(request, key(shown[-1])) if has_more else ""
    return shown, {"label": label, "previous": newer, "next": older, "note": "", "all_url": ""}


def _url(request: HttpRequest, after: str | None) -> str:
    query = {name: value for name, value in request.GET.items() if name != "after" and value}
    if after is not None:
        query["after"] = after
    return f"{request.path}?{urlencode(query)}" if query else request.path
