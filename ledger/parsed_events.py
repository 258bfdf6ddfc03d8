"""What is said and who says it: the values that pass between the doors and the ledger."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from amends.protocol.masking import MaskingKey
from edge.asgi import Problem


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
    both are written.
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
    by_desk: bool = False
    actor: str = ""
    trusted: bool = False
    trace: Any = None
