"""What comes back from an outside system: in a form that can be kept, and without credentials.

Neither PostgreSQL nor the ledger keeps NUL or half of a surrogate pair, and no integer of more than
1,000 digits and nothing nested without end: agents are refused with such a thing, and may ask their
engineer. An outside system is not asked. What it says is written down so far as it can be, for a
step whose answer could not be kept would hang for ever.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec

from amends.protocol.canonical import INTEGER_END
from amends.protocol.masking import (
    DEPTH_MAX,
    MaskingKey,
    holds_bare,
    holds_mask,
    kind_of,
    masked,
    without_last4,
)
from connectors.contract import FieldDiff
from ledger.canonical import same

# What was recorded masked, held against what is found in clear, by its mark (protocol/masking.py).
#
# A placeholder without a mark says nothing of the value, so nothing found differs from it.


def still_differ(
    differences: Sequence[FieldDiff], masking_key: Callable[[], MaskingKey]
) -> list[FieldDiff]:
    """The differences that are not only there because the recorded side was masked. The key is
    opened where one was.
    """
    if not any(map(_is_of_masked, differences)):
        return list(differences)
    key = masking_key()
    return [
        one
        for one in differences
        if not (_is_of_masked(one) and agrees(one.expected, one.actual, key))
    ]


def _is_of_masked(one: FieldDiff) -> bool:
    return bool(one.field) and holds_mask(one.expected)


def agrees(recorded: Any, found: Any, key: MaskingKey) -> bool:
    """Whether `found`, in clear, is what `recorded` stands for, as far as that can be told."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        return recorded.keys() == found.keys() and all(
            agrees(recorded[name], found[name], key) for name in recorded
        )
    if isinstance(recorded, list) and isinstance(found, list):
        return len(recorded) == len(found) and all(
            agrees(was, now, key) for was, now in zip(recorded, found, strict=True)
        )
    if not (isinstance(recorded, str) and holds_mask(recorded)):
        return same(recorded, found)
    if holds_bare(recorded):
        return True
    try:
        hidden = _hidden(recorded, found, key)
    except ValueError:  # what the ledger would not keep is not what it keeps
        return False
    return without_last4(hidden.encode()) == without_last4(recorded.encode())


def is_unchanged(before: Any, after: Any) -> bool:
    """Whether a field that holds something masked is known to be the same in two snapshots."""
    return not holds_bare([before, after]) and _compared(before) == _compared(after)


def _compared(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _compared(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return list(map(_compared, value))
    return without_last4(value.encode()) if isinstance(value, str) else value


def _hidden(recorded: str, found: Any, key: MaskingKey) -> str:
    """`found` as the ledger would have kept it in the place of `recorded`; raises ValueError."""
    kind = kind_of(recorded)
    if kind is None:
        return str(masked(found, (), key)) if isinstance(found, str) else ""
    inner = masked(found, (), key) if isinstance(found, dict | list) else found
    return "" if inner is None else key.placeholder(kind, inner)


UNKEEPABLE = re.compile("[\x00\ud800-\udfff]")
"""What neither JSON nor the database keeps."""
INSTEAD = "\N{REPLACEMENT CHARACTER}"

DEEP = DEPTH_MAX - 6
"""An event has a few levels around what was said; what is recorded of an effect is no deeper."""

SHOWN_MAX = 400
"""Characters of what is no JSON."""

NUMBERS = frozenset({bool, int, float})


def text(said: str) -> str:
    """The text, with a replacement character for what cannot be kept."""
    if said.isascii() and "\x00" not in said:
        return said
    return UNKEEPABLE.sub(INSTEAD, said)


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


def as_json(said: Any) -> Any:
    """What a plug-in has made, in objects and lists that it does not hold; of a dataclass its
    fields by name. `asdict` says the same, and takes twice as long.
    """
    if said is None or isinstance(said, str | int | float):
        return said
    if isinstance(said, dict):
        return {name: as_json(inner) for name, inner in said.items()}
    if isinstance(said, list | tuple):
        return [as_json(inner) for inner in said]
    if is_dataclass(said):
        return {one.name: as_json(getattr(said, one.name)) for one in fields(said)}
    return said


def _number(said: Any) -> Any:
    """A truth value, too, and nothing at all: both stay as they are."""
    if type(said) is int and abs(said) >= INTEGER_END:
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


# Redaction: nothing that leaves a call carries its credentials.
#
# Error texts of drivers and servers quote what they were given. So every text and every piece of
# evidence is searched for each credential as it is, as it looks in a URL, and in a Basic header.

TEXT_CHARACTERS_MAX = 400
EVIDENCE_BYTES_MAX = 4096
SHORT = 4
"""Shorter values ("on", "587") are no secrets and would blacken innocent words."""
OPEN = frozenset({"user"})
"""Names of log-ins are no secrets; blackened, they would take harmless words with them."""

BLACK = "[redacted]"
_USERINFO = re.compile(r"(?<=://)[^/\s@]+@")


class Redaction:
    def __init__(self, credentials: Mapping[str, Any] | None = None) -> None:
        clear = secrets_of(credentials or {})
        forms = {form for text in clear for form in _forms(text)} | set(_basic(credentials or {}))
        self._forms = sorted(forms, key=len, reverse=True)

    def text(self, said: str, characters_max: int = TEXT_CHARACTERS_MAX) -> str:
        """What was said without credentials, in one line, cut to length."""
        return " ".join(self._black(text(said)).split())[:characters_max]

    def evidence(self, evidence: Mapping[str, Any]) -> dict[str, Any]:
        """The evidence without credentials, shortened to a text where it is too large."""
        try:
            written = msgspec.json.encode(evidence)
        except (TypeError, ValueError, msgspec.MsgspecError):
            return {"unreadable": self.text(repr(evidence))}
        clean: dict[str, Any] = self.value(value(msgspec.json.decode(written)))
        if len(written) > EVIDENCE_BYTES_MAX:
            return {"shortened": self.text(msgspec.json.encode(clean).decode(), EVIDENCE_BYTES_MAX)}
        return clean

    def value(self, value: Any) -> Any:
        """Plain JSON without credentials."""
        if isinstance(value, str):
            return self._black(value)
        if isinstance(value, dict):
            return {self._black(key): self.value(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner) for inner in value]
        return value

    def _black(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, BLACK)
        return _USERINFO.sub(f"{BLACK}@", text)


def secrets_of(credentials: Mapping[str, Any]) -> set[str]:
    """The values of a credential that nobody may see."""
    hidden = {name: value for name, value in credentials.items() if name not in OPEN}
    return {text for text in _texts(hidden) if len(text) >= SHORT}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _forms(text: str) -> Iterator[str]:
    yield text
    yield quote(text, safe="")
    yield quote_plus(text)
    yield base64.b64encode(text.encode()).decode()
    yield msgspec.json.encode(text).decode()[1:-1]


def _basic(credentials: Mapping[str, Any]) -> Iterator[str]:
    """Any two of the values, as an `Authorization: Basic` header would carry them."""
    texts = [text for text in _texts(credentials) if text]
    for one in texts:
        yield base64.b64encode(f"{one}:".encode()).decode()
        for other in texts:
            yield base64.b64encode(f"{one}:{other}".encode()).decode()
