"""Redaction: nothing that leaves a call carries its credentials.

Error texts of drivers and servers quote what they were given. So every text and every piece of
evidence is searched for each credential as it is, as it looks in a URL, and as it looks in a Basic
header.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec

from connectors import normalization

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

    def text(self, text: str, characters_max: int = TEXT_CHARACTERS_MAX) -> str:
        """The text without credentials, in one line, cut to length."""
        return " ".join(self._black(normalization.text(text)).split())[:characters_max]

    def value(self, value: Any) -> Any:
        """Plain JSON without credentials."""
        return self._walk(value)

    def evidence(self, evidence: Mapping[str, Any]) -> dict[str, Any]:
        """The evidence without credentials, shortened to a text where it is too large."""
        try:
            written = msgspec.json.encode(evidence)
        except (TypeError, ValueError, msgspec.MsgspecError):
            return {"unreadable": self.text(repr(evidence))}
        clean: dict[str, Any] = self._walk(normalization.value(msgspec.json.decode(written)))
        if len(written) > EVIDENCE_BYTES_MAX:
            return {"shortened": self.text(msgspec.json.encode(clean).decode(), EVIDENCE_BYTES_MAX)}
        return clean

    def _walk(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._black(value)
        if isinstance(value, dict):
            return {self._black(key): self._walk(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._walk(inner) for inner in value]
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
