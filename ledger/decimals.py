"""Decimals in JSON: one with more digits than a double holds is rounded by decoders, in silence."""

from decimal import Decimal
from typing import Any

import msgspec

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
