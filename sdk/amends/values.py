"""What an agent holds in its hands, as JSON that every part of the desk stores and hashes alike."""

from __future__ import annotations

import base64
import dataclasses
import enum
import math
import re
from collections.abc import Mapping
from datetime import date, time
from typing import Any

# RFC 8785 writes numbers as IEEE doubles; a larger integer travels as text.
INTEGER_MAX = 2**53 - 1

# PostgreSQL stores no NUL, and UTF-8 has no lone surrogates.
_NOT_TEXT = re.compile("[\x00\ud800-\udfff]")


class Unset(enum.Enum):
    """Nothing was said; None says that the thing was not there."""

    UNSET = enum.auto()


UNSET = Unset.UNSET


def plain(value: Any) -> Any:
    """The value as plain JSON. What JSON does not know (a date, a Decimal) becomes its text."""
    if isinstance(value, enum.Enum):
        value = value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {part.name: getattr(value, part.name) for part in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {_text(str(name)): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, bool) else _scalar(value)


def _scalar(value: Any) -> int | float | str:
    if isinstance(value, int) and abs(value) <= INTEGER_MAX:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return _text(str(value))


def _text(text: str) -> str:
    return _NOT_TEXT.sub("\ufffd", text)
