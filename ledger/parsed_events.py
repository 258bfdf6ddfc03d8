"""What is said and who says it: the values that pass between the doors and the ledger."""

import os
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from amends.protocol.masking import MaskingKey
from edge.asgi import Problem

# UUIDv7 (RFC 9562): ids that sort by the time they were made, also within one millisecond.

_lock = threading.Lock()
_last = 0


def new_id() -> str:
    """A fresh id; each is greater than the ones this process made before."""
    global _last  # noqa: PLW0603
    with _lock:
        # 48 bits of milliseconds and 12 bits of a fraction, never going back in one process.
        ticks = max(time.time_ns() * 4096 // 1_000_000, _last + 1)
        _last = ticks
    random = int.from_bytes(os.urandom(8)) & (2**62 - 1)
    value = (ticks >> 12) << 80 | 0x7 << 76 | (ticks & 0xFFF) << 64 | 0b10 << 62 | random
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class EventResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one event: `accepted`, `duplicate` or `rejected` with a problem.

    A `warning` says what is odd about an event that was kept all the same.
    """

    id: str
    status: Literal["accepted", "duplicate", "rejected"]
    problem: Problem | None = None
    warning: Problem | None = None


@dataclass(slots=True)
class ParsedEvent:
    """One event, checked and masked, as it will be kept.

    `content` is its canonical JSON, `data_json` the JSON of its data alone, `time_text` the time as
    both are written, `unread` what of its data nobody reads, in words.
    """

    id: str
    type: str
    run: str
    action: str
    n: int | None
    time: datetime | None
    trace: dict[str, Any] | None
    data: dict[str, Any]
    content: bytes
    time_text: str | None = None
    data_json: bytes = b""
    unread: str = ""


@dataclass(frozen=True)
class Actor:
    """Who speaks: an agent through a key, a person, or a part of the desk.

    Only the desk says `action.approved` and the like; an agent speaks on its own runs alone.
    """

    workspace_id: int
    workspace: str
    kind: str
    name: str
    agent_id: int | None = None
    key_prefix: str = ""
    trusted: bool = False
    mask: tuple[str, ...] = ()
    capture_intent: bool = True
    capture_snapshot: bool = True
    stuck_after_seconds: int = 900
    scopes: frozenset[str] = field(default_factory=frozenset)
    masking_key: MaskingKey | None = field(default=None, repr=False, compare=False)

    @property
    def is_desk(self) -> bool:
        return self.kind != "agent"


class StoredEvent(NamedTuple):
    """An event as the fold sees it."""

    event_id: str
    type: str
    n: int | None
    data: dict[str, Any]
    sequence: int
    received: datetime
    actor: str = ""
    trusted: bool = False
    trace: Any = None

    @classmethod
    def of(
        cls, actor: Actor, event: ParsedEvent, sequence: int, received: datetime
    ) -> "StoredEvent":
        """The event as it was just kept, under this sequence number and at this moment."""
        return cls(event.id, event.type, event.n, event.data, sequence, received,
                   actor.name, actor.trusted, event.trace)  # fmt: skip
