"""Argument schemas that are declared as data, in settings or manifests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

TYPES: Mapping[str, Any] = {
    "text": str,
    "integer": int,
    "number": float,
    "flag": bool,
    "object": dict[str, Any],
    "list": list[Any],
    "any": Any,
}
FIELDS_MAX = 50


class AnyArgs(msgspec.Struct):
    """Nothing declared: every argument passes."""


def struct_of(name: str, declared: Mapping[str, str] | None) -> type[msgspec.Struct]:
    """A schema from `{"seat": "integer", "note?": "text"}`; raises ValueError where it is none.

    Every field may also be null if its name ends in "?".
    """
    if declared is None:
        return AnyArgs
    return _struct(name, tuple(sorted(declared.items())))


@lru_cache(maxsize=1000)
def _struct(name: str, fields: tuple[tuple[str, str], ...]) -> type[msgspec.Struct]:
    if len(fields) > FIELDS_MAX:
        raise ValueError(f"{name}: at most {FIELDS_MAX} arguments can be declared.")
    made: list[Any] = []
    for field, kind in fields:
        plain = field.removesuffix("?")
        if kind not in TYPES or not plain.isidentifier():
            known = ", ".join(TYPES)
            raise ValueError(f"{name}: {field} is not an argument of one of the types {known}.")
        made.append((plain, TYPES[kind] | None, None) if plain != field else (plain, TYPES[kind]))
    return msgspec.defstruct(name, made, forbid_unknown_fields=True, kw_only=True, module=__name__)
