"""Canonical JSON (RFC 8785) at the ledger's speed: the bytes that `amends.protocol` defines.

Writing that walks is right and slow; msgspec's sorted encoding is ten times faster and writes the
same bytes as long as no number needs ECMAScript's own spelling and no name sorts differently by
UTF-16 code units. Which of the two applies is known before encoding: see `is_plain`. A decimal with
more digits than a double holds is rounded by decoders, in silence: `rounded` finds it.
"""

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


SHOWN_CHARACTERS_MAX = 60
DIGITS_OF_A_DOUBLE = 17
"""As many tell every double from its neighbours."""

# All digits alike, and the point, so that a search finds numbers of many digits whatever they are.
_DIGITS_ALIKE = bytes(
    ord("0") if chr(byte).isdigit() or chr(byte) == "." else byte for byte in range(128)
) + bytes(128)
_MANY_DIGITS = b"0" * (DIGITS_OF_A_DOUBLE + 1)
_TINY = (b"0e-00", b"0E-00")


class _Rounded(Exception):
    """We stopped because of this number."""


def rounded(raw: bytes) -> str:
    """The first number that a decoder would change; empty if there is none.

    What a printer of doubles writes is no such number: the shortest digits that read back as the
    double, 17 of them, or all that it has. `raw` is JSON that was decoded before.
    """
    alike = raw.translate(_DIGITS_ALIKE)
    if _MANY_DIGITS not in alike and not any(tiny in alike for tiny in _TINY):
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
