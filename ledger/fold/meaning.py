"""What an event means to the fold.

The desk's own plans are runs too, folded from their `step.*` events: a step that is intended is an
attempt that started, one that is applied has succeeded, and so on.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from amends.protocol.vocabulary import EventType
from ledger.parsed_events import StoredEvent

MOVES_ACTION = frozenset(one for one in EventType if one.startswith("action."))
MOVES_RUN = frozenset(one for one in EventType if one.startswith("run."))
PLAN_MEANS: Mapping[str, EventType] = {
    EventType.PLAN_SUBMITTED: EventType.RUN_STARTED,
    EventType.PLAN_STARTING: EventType.RUN_STARTED,
    EventType.PLAN_STARTED: EventType.RUN_STARTED,
    EventType.PLAN_FINISHED: EventType.RUN_COMPLETED,
    EventType.PLAN_STOPPED: EventType.RUN_CANCELLED,
    EventType.PLAN_REJECTED: EventType.RUN_CANCELLED,
    EventType.PLAN_SUPERSEDED: EventType.RUN_CANCELLED,
}

# Of a step what says something of its call. Whatever else becomes of it (it is made ready, claimed,
# or comes to nothing) the fold need not look at.
STEPS_OF_CALLS = frozenset(
    {
        EventType.STEP_INTENDED,
        EventType.STEP_APPLIED,
        EventType.STEP_UNKNOWN,
        EventType.STEP_NO_EFFECT,
        EventType.STEP_NEEDS_HUMAN,
        EventType.STEP_REPORTED,
        EventType.STEP_VERIFIED,
    }
)

NOT_SAID: Any = object()


def moves_action(type_: str) -> bool:
    return type_ in MOVES_ACTION or type_ in STEPS_OF_CALLS


def moves_run(type_: str) -> bool:
    return type_ in MOVES_RUN or type_ in PLAN_MEANS


def meanings(event: StoredEvent) -> Iterable[str]:
    """The kinds of statement about an action that an event makes."""
    if event.type in STEPS_OF_CALLS:
        return _of_step(event)
    return (event.type,) if event.type in MOVES_ACTION else ()


def _of_step(event: StoredEvent) -> Iterable[str]:
    if "tool" in event.data:
        yield EventType.ACTION_PLANNED
    if event.type == EventType.STEP_INTENDED:
        yield EventType.ACTION_STARTED
    if event.type == EventType.STEP_APPLIED:
        yield EventType.ACTION_SUCCEEDED
    elif event.type == EventType.STEP_UNKNOWN or event.data.get("outcome") == "no_effect":
        yield EventType.ACTION_FAILED
    if event.type == EventType.STEP_VERIFIED:
        yield EventType.ACTION_VERIFIED


def in_order(events: Iterable[StoredEvent]) -> list[StoredEvent]:
    """Each event once, in the order of their ids, however often and in which order they come."""
    return sorted({event.event_id: event for event in events}.values(), key=lambda f: f.event_id)


def fence_of(event: StoredEvent) -> int | None:
    """The fence of a call. Steps have fences of another kind, which guard rows, not outcomes."""
    fence = event.data.get("fence")
    return fence if isinstance(fence, int) and not event.type.startswith("step.") else None


def value_of(events: Sequence[StoredEvent], name: str, flags: set[str]) -> Any:
    """The value under a name as the smallest event id has it; if another event differs, the flag
    says so.

    `events` come sorted by event id. Null is no statement.
    """
    if len(events) == 1:
        return events[0].data.get(name)
    found = NOT_SAID
    for event in events:
        value = event.data.get(name)
        if value is None:
            continue
        if found is NOT_SAID:
            found = value
        elif found != value:
            flags.add(f"disagree:{name}")
            break
    return None if found is NOT_SAID else found


def text(value: Any, characters_max: int) -> str:
    return value[:characters_max] if isinstance(value, str) else ""
