"""An action's row out of its events."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from amends.protocol.masking import without_last4
from amends.protocol.vocabulary import EventType
from ledger.canonical import canonical
from ledger.fold.attempts import AttemptRow, action_state, finished_at, fold_attempts
from ledger.fold.effects import EffectRow, all_compensated, fold_effects, planned_targets
from ledger.fold.meaning import MOVES_ACTION, in_order, meanings, text, value_of
from ledger.parsed_events import StoredEvent

CHANGED_NOTHING = "changed_nothing"
"""The flag of a call whose agent says that it changed nothing, where else it would be untold."""
NOT_AS_APPROVED = "not_as_approved"
"""The flag of a call whose agent does not say that it used what an approver made of its arguments.
"""
SOME_TIME = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class ActionRow:
    action: str
    n: int | None
    first_place: int
    last_place: int
    state: str
    tool: str = ""
    action_class: str = ""
    risk: str = ""
    saga: str = ""
    op: str = ""
    key: str = ""
    targets: Any = field(default_factory=list)
    args: Any = None
    args_digest: str = ""
    intent: Any = None
    compensation: Any = None
    before: Any = None
    result: Any = None
    error: Any = None
    compensated: str = "none"
    verified: str = "not_yet"
    checks: Any = None
    settled_by: str = ""
    flags: list[str] = field(default_factory=list)
    trusted: bool = False
    current_attempt: str = ""
    fence: int = 0
    asked_args: Any = None
    """What was asked for, where an approver has changed the arguments; a row has only these."""
    planned_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempts: list[AttemptRow] = field(default_factory=list)
    effects: list[EffectRow] = field(default_factory=list)


def fold_action(action: str, events: Iterable[StoredEvent]) -> ActionRow:
    """What all events of one action add up to."""
    ordered = in_order(events)
    kinds = _by_kind(ordered)
    flags: set[str] = set()
    planned = kinds[EventType.ACTION_PLANNED]
    tried = fold_attempts(kinds, flags)
    state = action_state(tried.rows, approved=bool(kinds[EventType.ACTION_APPROVED]))
    class_ = text(value_of(planned, "class", flags), 24)
    found = fold_effects(kinds, tried.rows, state, class_, flags)
    sequences = [event.sequence for event in ordered]
    row = ActionRow(
        action, _number(ordered, flags), min(sequences), max(sequences), state, action_class=class_,
        attempts=tried.rows, effects=found, current_attempt=tried.current, fence=tried.fence,
        settled_by=tried.settled_by[:120],
    )  # fmt: skip
    _plan(row, planned, flags)
    row.saga = row.saga or judged_saga(event.data for event in kinds[EventType.ACTION_STARTED])
    _change(row, kinds[EventType.ACTION_STARTED], flags)
    _outcome(row, kinds, flags)
    row.compensated = all_compensated(found, kinds[EventType.ACTION_COMPENSATED])
    spoken = [*planned, *kinds[EventType.ACTION_SUCCEEDED]]
    row.trusted = bool(spoken) and all(event.trusted for event in spoken)
    row.planned_at = _first(planned)
    row.started_at = _first(kinds[EventType.ACTION_STARTED])
    row.finished_at = finished_at(tried.rows, state)
    if state == "succeeded" and not found:
        told = [event.data.get("effects") for event in kinds[EventType.ACTION_SUCCEEDED]]
        flags |= {CHANGED_NOTHING} if [] in told else set()
    flags |= {text(event.data.get("flag"), 40) for event in kinds[EventType.ACTION_REFUSED]} - {""}
    row.flags = sorted(flags)
    return row


def planned_alone(action: str, data: dict[str, Any]) -> ActionRow:
    """What an action's one plan says of it, as `fold_action` reads it; the rest is left out."""
    row = ActionRow(action, None, 0, 0, "planned", action_class=text(data.get("class"), 24))
    _plan(row, [StoredEvent("", EventType.ACTION_PLANNED, None, data, 0, SOME_TIME)], set())
    return row


def _by_kind(ordered: list[StoredEvent]) -> defaultdict[str, list[StoredEvent]]:
    """Facts by kind of statement, without the plans that a later one replaced."""
    kinds: defaultdict[str, list[StoredEvent]] = defaultdict(list)
    for event in ordered:
        if event.type in MOVES_ACTION:
            kinds[event.type].append(event)
            continue
        for kind in meanings(event):
            kinds[kind].append(event)
    planned = kinds[EventType.ACTION_PLANNED]
    if len(planned) > 1:
        replaced = {replaced for event in planned for replaced in event.data.get("replaces") or ()}
        kinds[EventType.ACTION_PLANNED] = [
            event for event in planned if event.event_id not in replaced
        ]
    return kinds


def _number(ordered: list[StoredEvent], flags: set[str]) -> int | None:
    numbers = [event.n for event in ordered if event.n is not None]
    if len(set(numbers)) > 1:
        flags.add("disagree:n")
    return numbers[0] if numbers else None


def _plan(row: ActionRow, planned: list[StoredEvent], flags: set[str]) -> None:
    if not planned:
        return
    row.tool = text(value_of(planned, "tool", flags), 200)
    row.risk = text(value_of(planned, "risk", flags), 8)
    row.saga = text(value_of(planned, "saga", flags), 10)
    row.op = text(value_of(planned, "op", flags), 200)
    row.key = text(value_of(planned, "key", flags), 200)
    row.args = value_of(planned, "args", flags)
    if any(event.data.get("args_missing") for event in planned):
        flags.add("args_missing")
    row.intent = value_of(planned, "intent", set())  # worded anew at every try: no disagreement
    row.compensation = value_of(planned, "compensation", flags)
    row.before = value_of(planned, "before", set())
    targets = [found for event in planned if (found := planned_targets(event.data))]
    row.targets = targets[0] if targets else []
    if any(other != row.targets for other in targets):
        flags.add("disagree:targets")
    row.args_digest = args_digest(row.tool, row.targets, row.args)


def judged_saga(started: Iterable[dict[str, Any]]) -> str:
    """What the gate took a call for whose agent did not say, out of the data of its starts."""
    return next((text(told, 10) for data in started if (told := data.get("saga"))), "")


def _change(row: ActionRow, started: list[StoredEvent], flags: set[str]) -> None:
    """What an approver has made of the arguments is what the current try is made with. How the call
    was to be undone as it was asked for says nothing of it. The digest stays that of what was asked
    for, which is what a retry brings; a try without effect is over, and what it was made with, too.
    """
    current = [one for one in row.attempts if one.attempt == row.current_attempt]
    if not current:
        return
    made = [one.data["args"] for one in started
            if "args" in one.data and one.data.get("attempt") == row.current_attempt]  # fmt: skip
    made_with = made[0] if made else row.args
    told = [event.data.get("args", None if made else row.args)
            for one in current for event in one.successes]  # fmt: skip
    said = [one for one in told if one is not made_with]
    if any(_comparable(one) != _comparable(made_with) for one in said):
        flags.add(NOT_AS_APPROVED)
    if made and any(one.state != "no_effect" for one in current):
        row.asked_args, row.args, row.compensation = row.args, made_with, None


def _comparable(args: Any) -> bytes:
    return without_last4(canonical(args))


def args_digest(tool: str, targets: Any, args: Any) -> str:
    """SHA-256 of tool, targets and arguments: what must not differ under one key."""
    told = canonical({"tool": tool, "targets": targets, "args": args})
    return hashlib.sha256(without_last4(told)).hexdigest()


def _outcome(row: ActionRow, kinds: dict[str, list[StoredEvent]], flags: set[str]) -> None:
    successes = [event for attempt in row.attempts for event in attempt.successes]
    if len(successes) > 1:
        successes.sort(key=lambda event: event.event_id)
    row.result = value_of(successes, "result", flags)
    if row.compensation is None:  # what only the result tells how to undo
        row.compensation = value_of(successes, "compensation", flags)
    if row.state in {"failed", "unknown"}:
        errors = [attempt.error for attempt in row.attempts if attempt.error is not None]
        row.error = errors[-1] if errors else None
    verified = kinds[EventType.ACTION_VERIFIED]
    failed = [event for event in verified if event.data.get("ok") is False]
    if verified:
        row.verified = "failed" if failed else "ok"
        row.checks = (failed or verified)[0].data.get("checks")
    if failed and len(failed) != len(verified):
        flags.add("disagree:verified")


def _first(events: list[StoredEvent]) -> datetime | None:
    return min([event.received for event in events], default=None)
