"""Canonical JSON (RFC 8785) at the ledger's speed: the bytes that `amends.protocol` defines.

Writing that walks is right and slow; msgspec's sorted encoding is ten times faster and writes the
same bytes as long as no number needs ECMAScript's own spelling and no name sorts differently by
UTF-16 code units. Which of the two applies is known before encoding: see `is_plain`. A decimal with
more digits than a double holds is rounded by decoders, in silence: `rounded` finds it.

Also here: digests over it, and when two JSON values mean the same.
"""

import hashlib
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from amends.protocol import canonical as protocol
from amends.protocol.canonical import INTEGER_MAX, is_plain_float

_sorted = msgspec.json.Encoder(order="sorted")


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
    return protocol.canonical(value)


def canonical_of(value: Any) -> bytes:
    """The same of a value that a driver or a person's code made: texts and lists of kinds of their
    own are written as plain ones. Raises ValueError for what JSON cannot hold.
    """
    if _is_usual(value):
        return canonical(value, plain=True)
    return canonical(_plain(value))


def digest(value: Any) -> str:
    """SHA-256 of the canonical form, in hex."""
    return hashlib.sha256(canonical_of(value)).hexdigest()


def same(recorded: Any, found: Any) -> bool:
    """Whether a recorded value and a found one mean the same, however each side writes it.

    Equal as canonical JSON, so that 1 is 1.0 and never "1"; or both are the same instant with
    another offset. Where a system reads a text as a number (a column of decimals), its connector
    says so: `Observation.readings`.
    """
    if _canonical_or_none(recorded) == _canonical_or_none(found) is not None:
        return True
    if isinstance(recorded, str) and isinstance(found, str):
        return _instant(recorded) is not None and _instant(recorded) == _instant(found)
    if isinstance(recorded, dict) and isinstance(found, dict):
        return recorded.keys() == found.keys() and all(
            same(recorded[k], found[k]) for k in recorded
        )
    if isinstance(recorded, list) and isinstance(found, list):
        return len(recorded) == len(found) and all(map(same, recorded, found))
    return False


def _is_usual(value: Any) -> bool:
    """Whether the fast encoder takes it as it is; says no of whatever needs a closer look."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is dict:
        for name, inner in value.items():
            if type(name) is not str or not name.isascii():
                return False
            if type(inner) is not str and not _is_usual(inner):
                return False
        return True
    if kind is list:
        return all(map(_is_usual, value))
    return kind is int and -INTEGER_MAX <= value <= INTEGER_MAX


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return str.__str__(value)  # of a driver's own kind, perhaps
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    raise ValueError(f"{type(value).__name__} is not JSON")


def _canonical_or_none(value: Any) -> bytes | None:
    try:
        return canonical_of(value)
    except ValueError:
        return None


def _instant(text: str) -> datetime | None:
    if not len("2026-01-01T00:00Z") <= len(text) <= len("2026-01-01T00:00:00.000000+00:00:00"):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


# Numbers that a decoder would change.

SHOWN_CHARACTERS_MAX = 60
DIGITS_OF_A_DOUBLE = 17
"""As many tell every double from its neighbours."""

# All digits alike, the point, and either E, so that a search finds numbers of many digits, and tiny
# ones, whatever they are.
_DIGITS_ALIKE = bytes.maketrans(b"123456789.E", b"0000000000e")
_MANY_DIGITS = b"0" * (DIGITS_OF_A_DOUBLE + 1)
_TINY = b"0e-00"


class _Rounded(Exception):
    """We stopped because of this number."""


def rounded(raw: bytes) -> str:
    """The first number that a decoder would change; empty if there is none.

    What a printer of doubles writes is no such number: the shortest digits that read back as the
    double, 17 of them, or all that it has. `raw` is JSON that was decoded before.
    """
    alike = raw.translate(_DIGITS_ALIKE)
    if _MANY_DIGITS not in alike and _TINY not in alike:
        return ""
    try:
        _exact.decode(raw)
    except _Rounded as number:
        return str(number)[:SHOWN_CHARACTERS_MAX]
    return ""


def _same_or_stop(text: str) -> float:
    double, told = float(text), Decimal(text)
    if told not in (Decimal(repr(double)), Decimal(f"{double:.17g}"), Decimal(double)):
        raise _Rounded(text)
    return double


def _same_or_text(text: str) -> float | str:
    try:
        return _same_or_stop(text)
    except _Rounded:
        return text


_exact = msgspec.json.Decoder(float_hook=_same_or_stop)
_exactly = msgspec.json.Decoder(float_hook=_same_or_text)


def exactly(raw: bytes) -> Any:
    """The JSON value, with every number that a decoder would change as its text."""
    return _exactly.decode(raw)
