"""Keeping: what an outside system says, in a form that PostgreSQL and the ledger can hold.

Neither keeps the character NUL or half of a surrogate pair, and the ledger no integer of more than
1,000 digits and nothing nested without end: agents are refused with such a thing, and may ask their
engineer. An outside system is not asked. What it says is written down so far as it can be, for a
step whose answer could not be kept would hang for ever.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from amends.protocol.canonical import INTEGER_DIGITS_MAX
from amends.protocol.masking import DEPTH_MAX

_UNKEEPABLE = re.compile("[\x00\ud800-\udfff]")
INSTEAD = "\N{REPLACEMENT CHARACTER}"

DEEP = DEPTH_MAX - 6
"""An event has a few levels around what was said; what is recorded of an effect is no deeper."""

SHOWN_MAX = 400
"""Characters of what is no JSON."""

_INTEGER_END = 10**INTEGER_DIGITS_MAX
NUMBERS = frozenset({bool, int, float})


def text(said: str) -> str:
    """The text, with a replacement character for what cannot be kept."""
    if said.isascii() and "\x00" not in said:
        return said
    return _UNKEEPABLE.sub(INSTEAD, said)


def value(said: Any, depth: int = 0) -> Any:
    """Plain JSON that means the same; what is no JSON at all, or too deep or too long, the text of
    it.
    """
    kind = type(said)
    if kind is str:
        return text(said)
    if kind in NUMBERS or said is None:
        return _number(said)
    if depth >= DEEP:
        return text(repr(said)[:SHOWN_MAX])
    if kind is dict:
        return _object(said, depth)
    if kind is list or kind is tuple:
        return [value(inner, depth + 1) for inner in said]
    return _foreign(said, depth)


def _number(said: Any) -> Any:
    """A truth value, too, and nothing at all: both stay as they are."""
    if type(said) is int and abs(said) >= _INTEGER_END:
        return f"an integer of {said.bit_length()} bits"  # str() itself ends at 4,300 digits
    return str(said) if type(said) is float and not math.isfinite(said) else said


def _object(said: Mapping[Any, Any], depth: int) -> Any:
    """Names are texts; where two of them would be one, none is lost: it is no JSON."""
    kept = {text(str(name)): value(inner, depth + 1) for name, inner in said.items()}
    return kept if len(kept) == len(said) else text(repr(said)[:SHOWN_MAX])


def _foreign(said: Any, depth: int) -> Any:
    """What a plug-in passes on as its driver gave it: a kind of text, list or mapping of the
    driver's own, a moment, a decimal, an enumeration."""
    if isinstance(said, str):
        return text(str.__str__(said))
    if isinstance(said, Mapping):
        return _object(said, depth)
    if isinstance(said, list | tuple):
        return [value(inner, depth + 1) for inner in said]
    try:
        return value(msgspec.to_builtins(said), depth + 1)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return text(repr(said)[:SHOWN_MAX])
