"""Names in JSON: one that stands twice in an object is dropped by every decoder, in silence."""

import json
from typing import Any

NAME_CHARACTERS_MAX = 80


class _Repeated(Exception):
    """We stopped because of this name."""


def repeated(raw: bytes) -> str:
    """The first name found twice in one object, cut to what is shown; empty if there is none.

    `raw` is JSON that was decoded before, so that it is neither broken nor too deep.
    """
    try:
        json.loads(raw, object_pairs_hook=_pairs)
    except _Repeated as name:
        return str(name)[:NAME_CHARACTERS_MAX] or "an empty name"
    return ""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise _Repeated(next(name for name in names if names.count(name) > 1))
    return found
