"""Search: one `q` drives the list, its count, the export, bulk acts, saved views and the API."""

from recovery.search.keys import KEYS, parse
from recovery.search.language import QUERY_CHARACTERS_MAX, FieldTerm, Query, QueryError, TextTerm
from recovery.search.lists import (
    DEFAULT_ORDER,
    ORDERS,
    BadPlace,
    CappedCount,
    CasePage,
    count,
    counts,
    every,
    find,
    matching,
    neighbours,
    place_of,
    suggest,
)
from recovery.search.offers import QuerySuggestion

__all__ = [
    "DEFAULT_ORDER",
    "KEYS",
    "ORDERS",
    "QUERY_CHARACTERS_MAX",
    "BadPlace",
    "CappedCount",
    "CasePage",
    "FieldTerm",
    "Query",
    "QueryError",
    "QuerySuggestion",
    "TextTerm",
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
