"""Search: one `q` drives the list, its count, the export, bulk acts, saved views and the API."""

from recovery.search.keys import KEYS, parse
from recovery.search.language import QUERY_CHARACTERS_MAX, Field, Query, QueryError, Text
from recovery.search.lists import (
    DEFAULT_ORDER,
    ORDERS,
    BadPlace,
    CasePage,
    Count,
    count,
    counts,
    every,
    find,
    matching,
    neighbours,
    place_of,
)
from recovery.search.suggestions import Suggestion, suggest

__all__ = [
    "DEFAULT_ORDER",
    "KEYS",
    "ORDERS",
    "QUERY_CHARACTERS_MAX",
    "BadPlace",
    "CasePage",
    "Count",
    "Field",
    "Query",
    "QueryError",
    "Suggestion",
    "Text",
    "count",
    "counts",
    "every",
    "find",
    "matching",
    "neighbours",
    "parse",
    "place_of",
    "suggest",
]
