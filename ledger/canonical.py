"""Canonical JSON (RFC 8785) of what the ledger keeps, and the digests over it.

`rfc8785` is right and slow; msgspec's sorted encoding is ten times faster and writes the same bytes
as long as no number needs ECMAScript's own spelling and no name sorts differently by UTF-16 code
units. Which of the two applies is known before encoding: see `is_plain`.
"""

import hashlib
from typing import Any

import msgspec
import rfc8785

INTEGER_MAX = 2**53 - 1
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
    """The one way to write a JSON value; `plain` is what `is_plain` said, if already known."""
    if is_plain(value) if plain is None else plain:
        return _sorted.encode(value)
    return rfc8785.dumps(_with_wide_floats(value))


def digest(value: Any) -> str:
    """SHA-256 of the canonical form, in hex."""
    return hashlib.sha256(canonical(value)).hexdigest()


def content_digest(canonical_event: bytes) -> bytes:
    """What an event says: the same for the same id sent again."""
    return hashlib.sha256(canonical_event).digest()


def salted_digest(salt: bytes, canonical_event: bytes) -> bytes:
    """What the log's leaf holds: the salt keeps low-entropy values from being guessed."""
    return hashlib.sha256(salt + canonical_event).digest()


def _with_wide_floats(value: Any) -> Any:
    """PostgreSQL gives 1e300 back as an integer of 301 digits; it came in as a float and is one."""
    if type(value) is int and abs(value) > INTEGER_MAX:
        return float(value)
    if isinstance(value, dict):
        return {name: _with_wide_floats(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_wide_floats(inner) for inner in value]
    return value
