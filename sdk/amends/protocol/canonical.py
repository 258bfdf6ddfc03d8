"""Canonical JSON (RFC 8785) and the digests and keys that are built over it.

Two programs that mean the same value write the same bytes, so the same digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import rfc8785

INTEGER_MAX = 2**53 - 1
"""Up to here every integer is a double."""

INTEGER_DIGITS_MAX = 1_000
INTEGER_END = 10**INTEGER_DIGITS_MAX
"""More than any money, id or key has; a double's own integers have at most 309."""

# Between these, the shortest decimal that reads back as the number has no exponent in either
# spelling.
PLAIN_FLOAT_MIN, PLAIN_FLOAT_MAX = 1e-4, 1e15


def is_plain_float(value: float) -> bool:
    """Whether every writer of JSON spells this double as RFC 8785 does."""
    return PLAIN_FLOAT_MIN < abs(value) < PLAIN_FLOAT_MAX and not value.is_integer()


def canonical(value: Any) -> bytes:
    """The RFC 8785 bytes of a JSON value. ValueError for what is not JSON (NaN, a date).

    RFC 8785 takes numbers for IEEE doubles. An integer that no double holds (2**60 + 1) is written
    digit by digit, so that two different numbers never have one digest.
    """
    try:
        return rfc8785.dumps(value)
    except rfc8785.IntegerDomainError:
        return _with_wide_integers(value)


def _with_wide_integers(value: Any) -> bytes:
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


def content_digest(canonical_event: bytes) -> bytes:
    """What an event says: the same for the same id sent again."""
    return hashlib.sha256(canonical_event).digest()


def salted_digest(salt: bytes, canonical_event: bytes) -> bytes:
    """What the log's leaf holds: the salt keeps low-entropy values from being guessed."""
    return hashlib.sha256(salt + canonical_event).digest()


def digest(value: object) -> str:
    """`sha256:<hex>` over the canonical bytes of a JSON value."""
    return "sha256:" + hashlib.sha256(canonical(value)).hexdigest()


def idempotency_key(
    *, workspace: str, run: str, tool: str, targets: Sequence[Mapping[str, str]], op: str
) -> str:
    """The key of one logical operation: the same however often and however worded it is tried.

    The arguments are not in it, on purpose: a model that words its request anew after a restart
    meets its first call again instead of paying twice. A second operation of one tool on one
    target in one run needs its own `op`.
    """
    named = [{"type": target["type"], "id": target["id"]} for target in targets]
    identity = {"workspace": workspace, "run": run, "tool": tool, "op": op}
    return digest({**identity, "target": named})
