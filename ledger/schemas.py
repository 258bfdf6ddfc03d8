"""What the data of each type of event may hold (docs/events.md). Others are kept as they are."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from amends.protocol.vocabulary import ActionClass, EventType, Risk
from edge.pools import describe_types
from ledger import timestamps

Short = Annotated[str, Meta(max_length=120)]
Name = Annotated[str, Meta(max_length=200)]
Line = Annotated[str, Meta(max_length=400)]
Required = Annotated[str, Meta(min_length=1, max_length=200)]
Whole = Annotated[int, Meta(ge=0, le=2**53 - 1)]

EFFECTS_MAX = 200
TARGETS_MAX = 200
LABELS_MAX = 50

Reversibility = Literal["exact", "compensable", "irreversible", "unknown"]
Retry = Literal["model", "tool", "workflow", "human"]


class Person(msgspec.Struct):
    id: Short
    name: Name | None = None
    contact: Any = None
    language: Any = None


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
    args_missing: bool | None = None
    key: Name | None = None
    op: Name | None = None
    class_: ActionClass | None = None
    saga: Literal["pivot", "retriable", ""] | None = None
    risk: Risk | None = None
    intent: dict[str, Any] | None = None
    compensation: dict[str, Any] | None = None
    before: Any = None
    accepts_changed_arguments: bool | None = None
    tool_schema: dict[str, Any] | None = None


class ActionStarted(msgspec.Struct, rename={"class_": "class"}):
    attempt: Short | None = None
    retry: Retry | None = None
    fence: Whole | None = None
    class_: ActionClass | None = None
    saga: Literal["pivot"] | None = None
    args: Any = None


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
            timestamps.check(self.undo_until)


class ActionSucceeded(ParsedEffect):
    attempt: Short | None = None
    fence: Whole | None = None
    args: Any = None
    result: Any = None
    compensation: dict[str, Any] | None = None
    effects: Annotated[list[ParsedEffect], Meta(max_length=EFFECTS_MAX)] | None = None


class ActionFailed(msgspec.Struct):
    attempt: Short | None = None
    fence: Whole | None = None
    args: Any = None
    error: Error | None = None
    outcome: Literal["no_effect", "unknown"] | None = None


class ActionVerified(msgspec.Struct):
    ok: bool
    checks: list[dict[str, Any]] = []


AGENT_TYPES: Mapping[str, type[msgspec.Struct]] = {
    EventType.RUN_STARTED: RunStarted,
    EventType.RUN_CHECKPOINT: RunCheckpoint,
    EventType.RUN_COMPLETED: RunCompleted,
    EventType.RUN_FAILED: RunFailed,
    EventType.RUN_CANCELLED: RunCancelled,
    EventType.RUN_RESUMED: RunResumed,
    EventType.ACTION_PLANNED: ActionPlanned,
    EventType.ACTION_STARTED: ActionStarted,
    EventType.ACTION_SUCCEEDED: ActionSucceeded,
    EventType.ACTION_FAILED: ActionFailed,
    EventType.ACTION_VERIFIED: ActionVerified,
}
describe_types(*AGENT_TYPES.values())

# Members that nobody reads. They are kept, so that an older desk takes a newer client's events; a
# misspelt one looks the same, so its sender hears of it. Asked of every event, so it costs one
# comparison of names for each object; only what is strange is looked at closer.

UNREAD_TOLD_MAX = 3
UNREAD_CHARACTERS_MAX = 40
_NEAREST_KEPT = 4_096


class _Shape(NamedTuple):
    """The members of an object that are read, and which of them hold such objects, or lists of
    them. A target is none of these: without its two members it is refused.
    """

    members: frozenset[str]
    within: tuple[tuple[str, "_Shape"], ...] = ()


def _shape(kind: type[msgspec.Struct], **within: _Shape) -> _Shape:
    names = frozenset(one.encode_name for one in msgspec.structs.fields(kind))
    return _Shape(names, tuple(within.items()))


_PERSON, _ERROR = _shape(Person), _shape(Error)
_WITHIN: Mapping[type[msgspec.Struct], Mapping[str, _Shape]] = {
    RunStarted: {"on_behalf_of": _PERSON},
    RunFailed: {"error": _ERROR},
    ActionSucceeded: {"effects": _shape(ParsedEffect, affects=_PERSON), "affects": _PERSON},
    ActionFailed: {"error": _ERROR},
}
_SHAPES = {name: _shape(kind, **_WITHIN.get(kind, {})) for name, kind in AGENT_TYPES.items()}


def unread(type_: str, data: Mapping[str, Any]) -> str:
    """What of the data nobody reads, in words: “reqest” (did you mean “request”?); empty where all
    is known. The data fits its type.
    """
    found = _unread(_SHAPES[type_], data)
    return _in_words(*found[: UNREAD_TOLD_MAX + 1]) if found else ""


def _unread(shape: _Shape, data: Mapping[str, Any]) -> list[tuple[str, frozenset[str]]]:
    """Each name that is none of its object's members, cut to one more than is shown, and these."""
    known, most = shape.members, UNREAD_CHARACTERS_MAX + 1
    strange = () if known.issuperset(data) else [one for one in data if one not in known]
    found = [(one[:most], known) for one in strange]
    for name, inner in shape.within:
        value = data.get(name)
        for one in value if isinstance(value, list) else (value,) if value else ():
            found += _unread(inner, one)
    return found


@lru_cache(_NEAREST_KEPT)
def _in_words(*found: tuple[str, frozenset[str]]) -> str:
    """A client that sends such a member sends it with each event."""
    told = ", ".join(_as_meant(*one) for one in found[:UNREAD_TOLD_MAX])
    return f"{told}, and more" if len(found) > UNREAD_TOLD_MAX else told


def _as_meant(name: str, known: frozenset[str]) -> str:
    shown = name[:UNREAD_CHARACTERS_MAX] + "…" * (len(name) > UNREAD_CHARACTERS_MAX)
    near = nearest(name, known)
    return f"“{shown}” (did you mean “{near}”?)" if near else f"“{shown}”"


@lru_cache(_NEAREST_KEPT)
def nearest(name: str, known: frozenset[str]) -> str:
    """The one of `known` that `name` is probably a slip for; empty where it is like none."""
    return next(iter(get_close_matches(name, sorted(known), 1)), "")


IMPORTED = "reported"
"""What an import says as the `source` of a run: it happened elsewhere, and passed no gate here."""


def is_import(type_: str, data: dict[str, Any]) -> bool:
    return type_ == EventType.RUN_STARTED and data.get("source") == IMPORTED


# What only `begin` says, in the agent's name.
RESERVED: Mapping[str, Sequence[str]] = {
    EventType.ACTION_STARTED: ("fence", "class", "saga", "args"),
    EventType.ACTION_PLANNED: ("replaces", "observed"),
}
