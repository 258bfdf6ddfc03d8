"""What an event means to the fold.

The desk's own plans are runs too, folded from their `step.*` events: a step that is intended is an
attempt that started, one that is applied has succeeded, and so on.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from ledger.parsed_events import StoredEvent

PLANNED, STARTED, SUCCEEDED = "action.planned", "action.started", "action.succeeded"
FAILED, VERIFIED, OBSERVED = "action.failed", "action.verified", "action.observed"
APPROVED, COMPENSATED, SETTLED = "action.approved", "action.compensated", "action.settled"
REFUSED = "action.refused"

MOVES_ACTION = frozenset(
    {
        PLANNED,
        STARTED,
        SUCCEEDED,
        FAILED,
        VERIFIED,
        OBSERVED,
        APPROVED,
        COMPENSATED,
        SETTLED,
        REFUSED,
    }
)
MOVES_RUN = frozenset(
    {"run.started", "run.completed", "run.failed", "run.cancelled", "run.resumed", "run.checkpoint"}
)
PLAN_MEANS = {
    "plan.submitted": "run.started",
    "plan.starting": "run.started",
    "plan.started": "run.started",
    "plan.finished": "run.completed",
    "plan.stopped": "run.cancelled",
    "plan.rejected": "run.cancelled",
    "plan.superseded": "run.cancelled",
}

# A step that is made ready, claimed, or comes to nothing says nothing of a call, so the fold need
# not look.
QUIET_STEPS = frozenset(
    {"step.ready", "step.claimed", "step.drifted", "step.skipped", "step.cancelled"}
)

NOT_SAID: Any = object()


def moves_action(type_: str) -> bool:
    return type_ in MOVES_ACTION or (type_.startswith("step.") and type_ not in QUIET_STEPS)


def moves_run(type_: str) -> bool:
    return type_ in MOVES_RUN or type_ in PLAN_MEANS


def meanings(fact: StoredEvent) -> Iterable[str]:
    """The kinds of statement about an action that an event makes."""
    if fact.type in QUIET_STEPS:
        return ()
    if not fact.type.startswith("step."):
        return (fact.type,) if fact.type in MOVES_ACTION else ()
    return _of_step(fact)


def _of_step(fact: StoredEvent) -> Iterable[str]:
    if "tool" in fact.data:
        yield PLANNED
    if fact.type == "step.intended":
        yield STARTED
    if fact.type == "step.applied":
        yield SUCCEEDED
    elif fact.type == "step.unknown" or fact.data.get("outcome") == "no_effect":
        yield FAILED
    if fact.type == "step.verified":
        yield VERIFIED


def fence_of(fact: StoredEvent) -> int | None:
    """The fence of a call. Steps have fences of another kind, which guard rows, not outcomes."""
    fence = fact.data.get("fence")
    return fence if isinstance(fence, int) and not fact.type.startswith("step.") else None


def said(facts: Sequence[StoredEvent], name: str, flags: set[str]) -> Any:
    """A fact as the smallest event id has it; if another event differs, the flag says so.

    `facts` come sorted by event id. Null is no statement.
    """
    if len(facts) == 1:
        return facts[0].data.get(name)
    found = NOT_SAID
    for fact in facts:
        value = fact.data.get(name)
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
