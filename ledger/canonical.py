"""Canonical JSON (RFC 8785) of what the ledger keeps, and the digests over it.

RFC 8785 takes numbers for IEEE doubles. Integers that no double holds are kept here all the same,
and written digit by digit: two different numbers never have one spelling, nor has one number two.

Writing that walks is right and slow; msgspec's sorted encoding is ten times faster and writes the
same bytes as long as no number needs ECMAScript's own spelling and no name sorts differently by
UTF-16 code units. Which of the two applies is known before encoding: see `is_plain`.
"""

import hashlib
from decimal import Decimal
from typing import Any

import msgspec
import rfc8785

INTEGER_MAX = 2**53 - 1
"""Up to here every integer is a double."""

INTEGER_DIGITS_MAX = 1_000
"""More than any money, id or key has; a double's own integers have at most 309."""

# Between these, the shortest decimal that reads back as the number has no exponent in either
# spelling.
PLAIN_FLOAT_MIN, PLAIN_FLOAT_MAX = 1e-4, 1e15

_sorted = msgspec.json.Encoder(order="sorted")


def is_plain_float(value: float) -> bool:
    return PLAIN_FLOAT_MIN < abs(value) < PLAIN_FLOAT_MAX and not value.is_integer()


def is_plain(value: Any) -> bool:
    """Whether the fast encoder writes this value as RFC 8785 wants it."""
    kind = type(value)
    if kind is str:
        return True
    if kind is dict:
        for name, inner in value.items():
            if not name.isascii() or (type(inner) is not str and not is_plain(inner)):
                return False
        return True
    if kind is list:
        return all(map(is_plain, value))
    if kind is int:
        return bool(-INTEGER_MAX <= value <= INTEGER_MAX)
    return kind is not float or is_plain_float(value)


def canonical(value: Any, *, plain: bool | None = None) -> bytes:
    """The one way to write a JSON value; `plain` is what `is_plain` said, if already known.

    Raises ValueError for what is not JSON.
    """
    if is_plain(value) if plain is None else plain:
        return _sorted.encode(value)
    try:
        return rfc8785.dumps(value)
    except rfc8785.IntegerDomainError:
        return _with_wide_integers(value)


def content_digest(canonical_event: bytes) -> bytes:
    """What an event says: the same for the same id sent again."""
    return hashlib.sha256(canonical_event).digest()


def salted_digest(salt: bytes, canonical_event: bytes) -> bytes:
    """What the log's leaf holds: the salt keeps low-entropy values from being guessed."""
    return hashlib.sha256(salt + canonical_event).digest()


def _with_wide_integers(value: Any) -> bytes:
    """RFC 8785 but for its integers; names are sorted by UTF-16 code units (section 3.2.3)."""
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return b"{" + b",".join(map(_member, names, map(value.__getitem__, names))) + b"}"
    if isinstance(value, list | tuple):
        return b"[" + b",".join(map(_with_wide_integers, value)) + b"]"
    if isinstance(value, int) and abs(value) > INTEGER_MAX:
        return _integer(value)
    return rfc8785.dumps(value)


def _member(name: str, value: Any) -> bytes:
    return rfc8785.dumps(name) + b":" + _with_wide_integers(value)


def double_of(value: int) -> float | None:
    """The double whose shortest decimal is this very integer; None if there is none.

    PostgreSQL gives 1e300 back as an integer of 301 digits; it came in as a double and is one.
    """
    try:
        double = float(value)
    except OverflowError:
        return None
    return double if Decimal(repr(double)) == value else None


def _integer(value: int) -> bytes:
    """As a double of this very value is written, if there is one; else all its digits."""
    double = double_of(value)
    return str(value).encode() if double is None else rfc8785.dumps(double)
