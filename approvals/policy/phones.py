"""Whether the number of a phone stands in what people wrote, with or without its country."""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

PHONE_DIGITS = range(7, 16)  # ITU-T E.164 has at most 15
NATIONAL_DIGITS_MIN = 9  # what must agree where one of two numbers lacks its country
COUNTRY_DIGITS_MAX = 3
NORTH_AMERICAN = (10, 11)  # digits without and with its 1, which is often written without a plus

_PHONE = re.compile(r"(?<![\w])\+?\(?\d[\d ()/.-]{5,22}\d(?!\w)")


def is_phone(wanted: str) -> bool:
    """Whether it looks like the number of a phone."""
    return _PHONE.fullmatch(wanted.removeprefix("tel:")) is not None


class _Line(NamedTuple):
    """What of a phone's number says how it is dialled."""

    names_country: bool
    is_told: bool
    """Whether what it lacks, or has beyond another, is known to be the country."""


class Phones:
    """The numbers of phones in a text, as `spelling` compares it, by their digits: as they are, and
    without a country.
    """

    def __init__(self, seen: str) -> None:
        self._lines: dict[str, set[_Line]] = defaultdict(set)
        self._tails: dict[str, set[bool]] = defaultdict(set)
        for one in dict.fromkeys(_written(seen)):
            digits, abroad = _dialled(one), _names_country(one)
            self._lines[digits].add(_Line(abroad, _is_at_home(one)))
            for tail in _tails(digits):
                self._tails[tail].add(abroad or _is_american(tail, digits))

    def hold(self, wanted: str) -> bool:
        """Whether a number is one of them, or would be with the country that one of the two names
        alone.
        """
        wanted = wanted.removeprefix("tel:")
        digits, abroad = _dialled(wanted), _names_country(wanted)
        if len(digits) not in PHONE_DIGITS:
            return False
        if digits in self._lines:
            return True
        if not abroad and any(one or _is_at_home(wanted) for one in self._tails.get(digits, ())):
            return True
        return any(
            not line.names_country and (abroad or line.is_told or _is_american(tail, digits))
            for tail in _tails(digits)
            for line in self._lines.get(tail, ())
        )


def _tails(digits: str) -> Iterator[str]:
    """The digits without the first few, in which a country may be named."""
    for cut in range(1, COUNTRY_DIGITS_MAX + 1):
        if len(digits) - cut >= NATIONAL_DIGITS_MIN:
            yield digits[cut:]


def _is_american(short: str, long: str) -> bool:
    return long[:1] == "1" and (len(short), len(long)) == NORTH_AMERICAN


def _is_at_home(text: str) -> bool:
    return text.lstrip("( ")[:1] == "0"


def _names_country(text: str) -> bool:
    return text.lstrip("( ").startswith(("+", "00"))


def _dialled(text: str) -> str:
    """The digits, without the sign for abroad and the zero before a number at home."""
    return re.sub(r"\D", "", text.replace("(0)", "")).lstrip("0")


def _written(seen: str) -> Iterator[str]:
    for found in _PHONE.findall(seen):
        yield found
        yield from found.split(" / ")
