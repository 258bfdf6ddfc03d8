"""Canonical JSON (RFC 8785), digests over it, and when two JSON values mean the same."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any

from amends.protocol.canonical import INTEGER_MAX
from ledger import canonical as ledger_canonical


def canonical(value: Any) -> bytes:
    """The one way to write a JSON value; raises ValueError for what JSON cannot hold."""
    if _is_usual(value):
        return ledger_canonical.canonical(value, plain=True)
    return ledger_canonical.canonical(_plain(value))


def digest(value: Any) -> str:
    """SHA-256 of the canonical form, in hex."""
    return hashlib.sha256(canonical(value)).hexdigest()


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
        return all(type(k) is str and k.isascii() and _is_usual(v) for k, v in value.items())
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
        return canonical(value)
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
