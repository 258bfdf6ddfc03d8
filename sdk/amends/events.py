"""Statements on their way to the ledger: given an id, masked, and made small enough to travel."""

from __future__ import annotations

import hashlib
import secrets
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from amends.errors import TooLarge
from amends.protocol.canonical import canonical
from amends.protocol.masking import MaskingKey, masked
from amends.values import plain, signed_zeros

# The wire's limit is 64 KiB per event; the rest is for the envelope and for `begin`'s own members.
DATA_BYTES_MAX = 60 * 1024
BLOB_BYTES_MAX = 8 * 1024 * 1024
TEXT_CHARACTERS_MAX = 4000
TOO_MUCH = (
    "{} bytes are more than the {} that can be told of it, arguments included; only snapshots and"
    " results may be larger"
)

# Where a snapshot or a result may stand in `data`, and so may be named by reference.
_LARGE = ("result", "before", "after", "state")


@dataclass
class Statement:
    """An event as it goes out, with the blobs that it names."""

    event: dict[str, Any]
    blobs: dict[str, bytes] = field(default_factory=dict)

    @property
    def data(self) -> dict[str, Any]:
        data: dict[str, Any] = self.event["data"]
        return data


def new_id() -> str:
    """A UUID version 7 (RFC 9562): unique anywhere, and in order of time, which indexes like."""
    milliseconds = time.time_ns() // 1_000_000
    number = milliseconds << 80 | 0x7 << 76 | secrets.randbits(12) << 64
    return str(uuid.UUID(int=number | 0b10 << 62 | secrets.randbits(62)))


def short_id() -> str:
    """Fourteen signs, 70 random bits: unique in a workspace, and people can read it to each other.

    Crockford's base 32 (https://www.crockford.com/base32.html), which has no i, l, o or u.
    """
    return "".join(secrets.choice("0123456789abcdefghjkmnpqrstvwxyz") for _ in range(14))


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def statement(
    kind: str,
    *,
    run: str,
    data: dict[str, Any],
    mask: Iterable[str],
    masking_key: MaskingKey | None = None,
    n: int | None = None,
    action: str | None = None,
    trace: dict[str, Any] | None = None,
    with_snapshots: bool = True,
) -> Statement:
    """Build one event. Raises TooLarge where even references do not make it small enough."""
    event: dict[str, Any] = {"id": new_id(), "type": kind, "time": now(), "run": run}
    if action is not None:
        event["action"] = action
    if n is not None:
        event["n"] = n
    if trace:
        event["trace"] = plain(trace)
    blobs: dict[str, bytes] = {}
    told = _recorded(plain(data), with_snapshots=with_snapshots)
    event["data"] = _small(masked(told, mask, masking_key, nuls=False), blobs)
    return Statement(event, blobs)


def cut(text: str) -> str:
    """An error's message, short enough for an event."""
    return text if len(text) <= TEXT_CHARACTERS_MAX else text[: TEXT_CHARACTERS_MAX - 1] + "…"


def _recorded(data: dict[str, Any], *, with_snapshots: bool) -> dict[str, Any]:
    """The data, with its snapshots as a database can be given them back, or without them: a large
    one goes ahead of its event, and the desk could not tell what it is.
    """
    effects = data.get("effects")
    for holder in [data, *(effects if isinstance(effects, list) else [])]:
        for name in ("before", "after"):
            if not with_snapshots:
                holder.pop(name, None)
            elif isinstance(told := holder.get(name), list):
                holder[name] = [signed_zeros(one) for one in told]
            elif told is not None:
                holder[name] = signed_zeros(told)
    return data


def _small(data: dict[str, Any], blobs: dict[str, bytes]) -> dict[str, Any]:
    """Name the largest snapshots by reference until the rest fits."""
    while (size := len(canonical(data))) > DATA_BYTES_MAX:
        places = sorted(_places(data), key=lambda place: -len(canonical(place[0][place[1]])))
        if not places:
            raise TooLarge(TOO_MUCH.format(size, DATA_BYTES_MAX))
        holder, name = places[0]
        body = canonical(holder[name])
        if len(body) > BLOB_BYTES_MAX:
            raise TooLarge(f"{name} has {len(body)} bytes, more than a blob may have")
        sha256 = hashlib.sha256(body).hexdigest()
        blobs[sha256] = body
        holder[name] = {"ref": f"sha256:{sha256}"}
    return data


def _places(data: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Each (holder, name) whose value may still be replaced by a reference."""
    holders = [data, *(data.get("effects") or [])]
    found: list[tuple[Any, Any]] = []
    for holder in holders:
        for name in _LARGE:
            value = holder.get(name)
            if isinstance(value, list) and name != "result":
                found += [(value, index) for index in range(len(value))]
            elif value is not None:
                found.append((holder, name))
    return [place for place in found if not _is_ref(place[0][place[1]])]


def _is_ref(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and set(value) == {"ref"})
