"""What the data of each type of event may hold (docs/events.md). Others are kept as they are."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ledger import clocks
from workspaces.edge import described

Short = Annotated[str, Meta(max_length=120)]
Name = Annotated[str, Meta(max_length=200)]
Line = Annotated[str, Meta(max_length=400)]
Required = Annotated[str, Meta(min_length=1, max_length=200)]
Whole = Annotated[int, Meta(ge=0, le=2**53 - 1)]

EFFECTS_MAX = 200
TARGETS_MAX = 200
LABELS_MAX = 50

Risk = Literal["low", "medium", "high", "critical"]
Class = Literal[
    "read_only", "draft", "internal_update", "external_reversible", "external_irreversible"
]
Reversibility = Literal["exact", "compensable", "irreversible", "unknown"]
Retry = Literal["model", "tool", "workflow", "human"]


class Person(msgspec.Struct):
    id: Short
    name: Name | None = None
    contact: Any = None


class Target(msgspec.Struct):
    type: Annotated[str, Meta(min_length=1, max_length=120)]
    id: Annotated[str, Meta(min_length=1, max_length=400)]


class RunStarted(msgspec.Struct):
    agent: Short | None = None
    model: Short | None = None
    request: str | None = None
    on_behalf_of: Person | None = None
    goal: str | None = None
    labels: Annotated[dict[Name, Any], Meta(max_length=LABELS_MAX)] | None = None
    source: Any = None


class RunCheckpoint(msgspec.Struct):
    name: Required
    state: Any = None
    state_ref: Name | None = None
    completed: list[Short] = []
    pending: list[Short] = []
    recovery_mode: Annotated[str, Meta(max_length=60)] | None = None
    instructions: str | None = None
    summary: str | None = None


class RunCompleted(msgspec.Struct):
    summary: str | None = None


class Error(msgspec.Struct):
    type: Name | None = None
    message: str | None = None
    retryable: bool | None = None


class RunFailed(msgspec.Struct):
    error: Error | None = None
    failed_action: Short | None = None


class RunCancelled(msgspec.Struct):
    by: Name | None = None
    reason: str | None = None


class RunResumed(msgspec.Struct, rename={"from_": "from"}):
    directive: Any = None
    from_: Name | None = None


class ActionPlanned(msgspec.Struct, rename={"class_": "class"}):
    tool: Required
    targets: Annotated[list[Target], Meta(max_length=TARGETS_MAX)] = []
    target: Target | None = None
    args: Any = None
    key: Name | None = None
    op: Name | None = None
    class_: Class | None = None
    saga: Literal["pivot", "retriable", ""] | None = None
    risk: Risk | None = None
    intent: dict[str, Any] | None = None
    compensation: dict[str, Any] | None = None
    before: Any = None


class ActionStarted(msgspec.Struct):
    attempt: Short | None = None
    retry: Retry | None = None
    fence: Whole | None = None


class ParsedEffect(msgspec.Struct):
    target: Target | None = None
    before: Any = None
    after: Any = None
    summary: Line | None = None
    reversibility: Reversibility | None = None
    undo_until: Annotated[datetime, Meta(tz=True)] | None = None
    affects: Person | None = None

    def __post_init__(self) -> None:
        if self.undo_until is not None:
            clocks.check(self.undo_until)


class ActionSucceeded(ParsedEffect):
    attempt: Short | None = None
    fence: Whole | None = None
    result: Any = None
    effects: Annotated[list[ParsedEffect], Meta(max_length=EFFECTS_MAX)] | None = None


class ActionFailed(msgspec.Struct):
    attempt: Short | None = None
    fence: Whole | None = None
    error: Error | None = None
    outcome: Literal["no_effect", "unknown"] | None = None


class ActionVerified(msgspec.Struct):
    ok: bool
    checks: list[dict[str, Any]] = []


AGENT_TYPES: dict[str, type[msgspec.Struct]] = {
    "run.started": RunStarted,
    "run.checkpoint": RunCheckpoint,
    "run.completed": RunCompleted,
    "run.failed": RunFailed,
    "run.cancelled": RunCancelled,
    "run.resumed": RunResumed,
    "action.planned": ActionPlanned,
    "action.started": ActionStarted,
    "action.succeeded": ActionSucceeded,
    "action.failed": ActionFailed,
    "action.verified": ActionVerified,
}
described(*AGENT_TYPES.values())

IMPORTED = "reported"
"""What an import says as the `source` of a run: it happened elsewhere, and passed no gate here."""


def is_import(type_: str, data: dict[str, Any]) -> bool:
    return type_ == "run.started" and data.get("source") == IMPORTED


# What only `begin` says, in the agent's name.
RESERVED = {"action.started": ("fence",), "action.planned": ("replaces", "observed")}

DESK_FAMILIES = frozenset(
    {"approval", "case", "plan", "step", "correction", "resume", "policy", "key", "member", "team",
     "connection", "pause", "payload", "ledger", "workspace", "person", "alert"}
)  # fmt: skip
DESK_ACTIONS = frozenset(
    {"action.approved", "action.compensated", "action.settled", "action.observed", "action.refused"}
)


def is_desk_type(type_: str) -> bool:
    return type_ in DESK_ACTIONS or type_.partition(".")[0] in DESK_FAMILIES
