"""Folding a batch of events: the rows of the runs and actions that it moves, as statements.

Their earlier events have been read under the runs' locks. The new ones are added, and the rows are
written set-based: one upsert for all actions of a batch, one for all attempts, and so on. The
tables below map each column to its type, by which its values are sent as text (`_ENCODERS`), and
cast where they land (`_CASTS`).
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from amends.protocol.vocabulary import EventType
from ledger.append import statements
from ledger.append.statements import (
    LIST,
    NAMELESS_ATTEMPTS,
    TEXTS,
    TOUCH,
    WITHDRAW_EFFECTS,
    Rows,
    Statement,
    joined,
    joined_numbers,
    joined_texts,
    json_text,
)
from ledger.fold.actions import ActionRow, fold_action
from ledger.fold.meaning import moves_action, moves_run
from ledger.fold.runs import CheckpointRow, RunRow, checkpoint_of, fold_run
from ledger.parsed_events import Actor, ParsedEvent, StoredEvent

RUN = {
    "state": "text", "model": "text", "request": "text", "goal": "text", "customer": "text",
    "customer_name": "text", "on_behalf_of": "jsonb", "labels": "jsonb", "trace": "jsonb",
    "summary": "text", "error": "jsonb", "failed_action": "text", "cancelled_by": "text",
    "reason": "text", "resumed_from": "text", "flags": "text[]", "ended_at": "timestamptz",
}  # fmt: skip
ACTION = {
    "n": "nullable bigint", "first_place": "bigint", "last_place": "bigint", "tool": "text",
    "action_class": "text", "risk": "text", "saga": "text", "op": "text", "key": "text",
    "targets": "jsonb", "args": "jsonb", "args_digest": "text", "intent": "jsonb",
    "compensation": "jsonb", "before": "jsonb", "result": "jsonb", "error": "jsonb",
    "state": "text", "compensated": "text", "verified": "text", "checks": "jsonb",
    "settled_by": "text",
    "flags": "text[]", "trusted": "boolean", "current_attempt": "text", "fence": "bigint",
    "planned_at": "timestamptz", "started_at": "timestamptz", "finished_at": "timestamptz",
}  # fmt: skip
ATTEMPT = {
    "state": "text", "fence": "nullable bigint", "stale": "boolean", "retry": "text",
    "error": "jsonb", "started_at": "timestamptz", "finished_at": "timestamptz",
}  # fmt: skip
EFFECT = {
    "target_type": "text", "target_id": "text", "before": "jsonb", "after": "jsonb",
    "has_before": "boolean", "has_after": "boolean", "source": "text", "summary": "text",
    "reversibility": "text", "undo_until": "timestamptz", "affects": "jsonb", "compensated": "text",
}  # fmt: skip

_CASTS = {
    "text": "coalesce(u.{0}, '')", "jsonb": "u.{0}::jsonb", "timestamptz": "u.{0}::timestamptz",
    "text[]": "string_to_array(coalesce(u.{0}, ''), ',')", "nullable bigint": "u.{0}::bigint",
    "bigint": "u.{0}::bigint", "boolean": "u.{0}::boolean",
}  # fmt: skip


@lru_cache(maxsize=1024)  # the rows of a batch were received at one moment
def moment_or_none(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


_ENCODERS: dict[str, Callable[[Iterable[Any]], str]] = {
    "text": joined_texts,
    "jsonb": lambda values: joined(map(json_text, values)),
    "timestamptz": lambda values: joined(map(moment_or_none, values)),
    "text[]": lambda values: joined(map(",".join, values)),
    "nullable bigint": lambda values: joined(
        None if value is None else str(value) for value in values
    ),
    "bigint": joined_numbers,
    "boolean": lambda values: joined("t" if value else "f" for value in values),
}


def _columns(rows: Sequence[Any], columns: Mapping[str, str]) -> list[str]:
    """The values of each column as one text."""
    return _lists(rows, columns.values(), columns)


def _lists(rows: Sequence[Any], types: Iterable[str], names: Iterable[str]) -> list[str]:
    by_column = zip(*map(attrgetter(*names), rows), strict=True)
    return [_ENCODERS[type_](values) for type_, values in zip(types, by_column, strict=True)]


def _source(keys: Mapping[str, str], columns: Mapping[str, str]) -> str:
    kinds = [*keys.items(), *columns.items()]
    lists = ", ".join(TEXTS if kind == "text" else LIST for _, kind in kinds)
    return f"unnest({lists}) AS u ({', '.join(name for name, _ in kinds)})"


def _cast(columns: Mapping[str, str]) -> str:
    return ", ".join(_CASTS[kind].format(name) for name, kind in columns.items())


def _excluded(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = excluded.{name}" for name in columns)


# Keys were looked up under the run's lock, so what is new is inserted plainly: to ask once more for
# each row whether it is there would cost as much as a third of it.
_ACTION_KEYS = {"id": "bigint", "agent_id": "nullable bigint", "run_id": "bigint", "action": "text"}
NEW_ACTIONS = f"""
INSERT INTO ledger_action (workspace_id, {", ".join(_ACTION_KEYS | ACTION)})
SELECT %b, {_cast(_ACTION_KEYS | ACTION)}
FROM {_source({}, _ACTION_KEYS | ACTION)}"""  # noqa: S608
KNOWN_ACTIONS = f"{NEW_ACTIONS} ON CONFLICT (id) DO UPDATE SET {_excluded(ACTION)}"

_ATTEMPT_KEYS = {"action_id": "bigint", "attempt": "text"}
NEW_ATTEMPTS = f"""
INSERT INTO ledger_attempt ({", ".join(_ATTEMPT_KEYS | ATTEMPT)})
SELECT {_cast(_ATTEMPT_KEYS | ATTEMPT)}
FROM {_source({}, _ATTEMPT_KEYS | ATTEMPT)}"""  # noqa: S608
KNOWN_ATTEMPTS = (
    f"{NEW_ATTEMPTS} ON CONFLICT (action_id, attempt) DO UPDATE SET {_excluded(ATTEMPT)}"
)

_EFFECT_KEYS = {"action_id": "bigint", "position": "bigint"}
NEW_EFFECTS = f"""
INSERT INTO ledger_effect (workspace_id, withdrawn, {", ".join(_EFFECT_KEYS | EFFECT)})
SELECT %b, false, {_cast(_EFFECT_KEYS | EFFECT)}
FROM {_source({}, _EFFECT_KEYS | EFFECT)}"""  # noqa: S608
KNOWN_EFFECTS = f"""{NEW_EFFECTS}
ON CONFLICT (action_id, position) DO UPDATE SET withdrawn = false, {_excluded(EFFECT)}"""

_RUN_SET = ", ".join(f"{name} = {_CASTS[kind].format(name)}" for name, kind in RUN.items())
UPDATE_RUNS = f"""
UPDATE ledger_run r SET {_RUN_SET}
FROM {_source({"id": "bigint"}, RUN)} WHERE r.id = u.id::bigint"""  # noqa: S608

_TOUCHED = {
    "id": "bigint", "first_place": "bigint", "last_place": "bigint", "actions": "bigint",
    "effects": "bigint",
}  # fmt: skip
TOUCH_RUNS = f"""
UPDATE ledger_run r SET {TOUCH}
FROM {_source({}, _TOUCHED)} WHERE r.id = u.id::bigint"""  # noqa: S608
MOVE_RUNS = f"""
UPDATE ledger_run r SET {TOUCH}, {_RUN_SET}
FROM {_source(_TOUCHED, RUN)} WHERE r.id = u.id::bigint"""  # noqa: S608


class Folded(NamedTuple):
    """An action as it was folded, and where its row stands or will stand.

    `known_effects` is how many effects its row has so far, None if there is no such row.
    """

    id: int
    run_id: int
    agent_id: int | None
    known_effects: int | None
    row: ActionRow


def write_actions(workspace_id: int, folded: Sequence[Folded]) -> list[Statement]:
    """The statements that write folded actions, their attempts and effects."""
    new = [one for one in folded if one.known_effects is None]
    known = [one for one in folded if one.known_effects is not None]
    named = [one.id for one in known if all(attempt.attempt for attempt in one.row.attempts)]
    fewer = [one for one in known if (one.known_effects or 0) > len(one.row.effects)]
    found = [
        *_write(workspace_id, new, NEW_ACTIONS, NEW_ATTEMPTS, NEW_EFFECTS),
        *_write(workspace_id, known, KNOWN_ACTIONS, KNOWN_ATTEMPTS, KNOWN_EFFECTS),
    ]
    if named:
        found.append((NAMELESS_ATTEMPTS, [named]))
    if fewer:
        kept = [len(one.row.effects) for one in fewer]
        found.append((WITHDRAW_EFFECTS, [[one.id for one in fewer], kept]))
    return found


def _write(
    workspace_id: int, folded: Sequence[Folded], actions: str, attempts: str, effects: str
) -> list[Statement]:
    if not folded:
        return []
    rows = [one.row for one in folded]
    keys = _lists(folded, ("bigint", "nullable bigint", "bigint"), ("id", "agent_id", "run_id"))
    names = joined_texts([row.action for row in rows])
    found: list[Statement] = [(actions, [workspace_id, *keys, names, *_columns(rows, ACTION)])]
    tried = [one for row in rows for one in row.attempts]
    if tried:
        ids = joined_numbers([one.id for one in folded for _ in one.row.attempts])
        names = joined_texts([one.attempt for one in tried])
        found.append((attempts, [ids, names, *_columns(tried, ATTEMPT)]))
    done = [one for row in rows for one in row.effects]
    if done:
        ids = joined_numbers([one.id for one in folded for _ in one.row.effects])
        places = joined_numbers([one.position for one in done])
        found.append((effects, [workspace_id, ids, places, *_columns(done, EFFECT)]))
    return found


def write_runs(folded: Sequence[tuple[int, RunRow]]) -> list[Statement]:
    if not folded:
        return []
    rows = [row for _, row in folded]
    return [(UPDATE_RUNS, [joined_numbers(run for run, _ in folded), *_columns(rows, RUN)])]


class RunDelta(NamedTuple):
    """What new events do to a run: between which places they stand, and how many rows it gains.

    `row` is what the run as a whole now is, None if they say nothing of it.
    """

    id: int
    first_place: int
    last_place: int
    actions: int
    effects: int
    row: RunRow | None


def touch_runs(touches: Sequence[RunDelta], actor: Actor, received: datetime) -> list[Statement]:
    """One update for the runs that are folded anew, and one for those that are only touched."""
    now = [received, received, not actor.is_desk, received, float(actor.stuck_after_seconds)]
    moved = [touch for touch in touches if touch.row is not None]
    touched = [touch for touch in touches if touch.row is None]
    found: list[Statement] = []
    if moved:
        rows = [touch.row for touch in moved]
        found.append((MOVE_RUNS, [*now, *_columns(moved, _TOUCHED), *_columns(rows, RUN)]))
    if touched:
        found.append((TOUCH_RUNS, [*now, *_columns(touched, _TOUCHED)]))
    return found


CHECKPOINT = {
    "event_id": "text", "name": "text", "n": "nullable bigint", "place": "bigint",
    "at": "timestamptz", "state": "jsonb", "state_ref": "text", "completed": "jsonb",
    "pending": "jsonb",
    "recovery_mode": "text", "instructions": "text", "summary": "text",
}  # fmt: skip
NEW_CHECKPOINTS = f"""
INSERT INTO ledger_checkpoint (run_id, {", ".join(CHECKPOINT)})
SELECT u.run_id::bigint, {_cast(CHECKPOINT)}
FROM {_source({"run_id": "bigint"}, CHECKPOINT)}
ON CONFLICT (run_id, event_id) DO NOTHING"""  # noqa: S608


def write_checkpoints(found: Sequence[tuple[int, CheckpointRow]]) -> list[Statement]:
    if not found:
        return []
    rows = [row for _, row in found]
    return [
        (NEW_CHECKPOINTS, [joined_numbers(run for run, _ in found), *_columns(rows, CHECKPOINT)])
    ]


FoldKey = tuple[str, str]
"""A run and an action of it, by which events are folded; "" for the run as a whole."""


@dataclass
class LockedRun:
    id: int
    agent_id: int | None
    started_at: datetime | None
    is_forgotten: bool = False
    has_erased_actions: bool = False
    is_new: bool = False


def locked_runs(rows: Rows) -> dict[str, LockedRun]:
    """What `LOCK_RUNS` found, by the runs' names."""
    return {name: LockedRun(id_, *rest) for id_, name, *rest in rows}


class ExistingAction(NamedTuple):
    """The row of an action before this batch, and how many effects it has."""

    id: int
    effects: int


class CompensatedEffect(NamedTuple):
    """All that is said of an action: its effect at this position, which is one on this target, is
    compensated, or corrected. The ids are those of their rows, once they are known to stand.
    """

    position: int
    target: tuple[str, str]
    outcome: str
    action_id: int = 0
    effect_id: int = 0


@dataclass
class Folding:
    """The runs that are locked, what was known of them before, and what became of them.

    Methods named `…_queries` and `…_query` give what is to be asked, and `add_…` take the rows.
    `compensated` are actions whose rows are changed where they stand; all others are folded anew.
    """

    actor: Actor
    runs: dict[str, LockedRun] = field(default_factory=dict)
    prior_of: dict[FoldKey, list[StoredEvent]] = field(default_factory=lambda: defaultdict(list))
    erased: set[FoldKey] = field(default_factory=set)
    known_actions: dict[tuple[int, str], ExistingAction] = field(default_factory=dict)
    """By the run's row id and the action."""
    fresh_ids: list[int] = field(default_factory=list)
    """Row ids for actions that are new; as many as there may be."""
    touched: list[int] = field(default_factory=list)
    folded: dict[FoldKey, ActionRow] = field(default_factory=dict)
    folded_ahead: dict[FoldKey, ActionRow] = field(default_factory=dict)
    """Actions that were folded before it was known where their rows stand."""
    compensated: dict[FoldKey, CompensatedEffect] = field(default_factory=dict)

    def new_runs(self) -> list[int]:
        return [run.id for run in self.runs.values() if run.is_new]

    def prior_queries(self, events: Iterable[ParsedEvent], until: datetime) -> list[Statement]:
        """Reads the earlier events and the rows of what these move; none where all is new."""
        about = {(event.run, what) for event in events if (what := subject(event)) is not None}
        old = sorted(
            (run, action) for run, action in about if run in self.runs and not self.runs[run].is_new
        )
        if not old:
            return []
        runs, actions = [run for run, _ in old], [action for _, action in old]
        since = min(self.runs[run].started_at or until for run in runs)
        prior = [runs, actions, self.actor.workspace_id, since, until]
        return [(statements.PRIOR_EVENTS, prior), self.known_query(old)]

    def add_prior(self, events: Rows, actions: Rows) -> None:
        for run, action, event_id, type_, n, data, *rest in events:
            self.prior_of[run, action].append(stored_event_of(event_id, type_, n, data, *rest))
            if data is None:
                self.erased.add((run, action))
        self.add_known(actions)

    def known_query(self, keys: Iterable[FoldKey]) -> Statement:
        """Asks which of these actions have a row."""
        named = [(self.runs[run].id, action) for run, action in keys if run in self.runs]
        return (statements.KNOWN_ACTIONS, [[run for run, _ in named], [one for _, one in named]])

    def add_known(self, actions: Rows) -> None:
        for run_id, action, id_, effects in actions:
            self.known_actions[run_id, action] = ExistingAction(id_, effects)

    def standing_query(self, compensated: Mapping[FoldKey, CompensatedEffect]) -> Statement:
        """Asks which of these effects stand in a row, of actions of which nothing was erased."""
        columns = zip(
            *((run, action, self.runs[run].id, one.position, *one.target)
              for (run, action), one in compensated.items()), strict=True,
        )  # fmt: skip
        values = [list(column) for column in columns]
        since = min((at for run in values[0] if (at := self.runs[run].started_at)), default=None)
        return (statements.STANDING_EFFECTS, [*values, self.actor.workspace_id, since])

    def fold_ahead(
        self,
        events: Iterable[ParsedEvent],
        sequences: Iterable[int],
        received: datetime,
        keys: Container[FoldKey],
    ) -> None:
        """Fold these actions, of which everything is known, with all that is said of them now."""
        new: dict[FoldKey, list[StoredEvent]] = defaultdict(list)
        for event, sequence in zip(events, sequences, strict=True):
            if (event.run, event.action) in keys and moves_action(event.type):
                stored = StoredEvent.of(self.actor, event, sequence, received)
                new[event.run, event.action].append(stored)
        self.folded_ahead = {key: self._fold(key, of_action) for key, of_action in new.items()}

    def fold(
        self, accepted: Iterable[ParsedEvent], sequences: Iterable[int], received: datetime
    ) -> list[Statement]:
        """The writes that follow from accepted events, which have these sequence numbers."""
        new_of: dict[FoldKey, list[StoredEvent]] = defaultdict(list)
        moved: dict[str, list[int]] = defaultdict(list)
        compensated: dict[FoldKey, int] = {}
        for event, sequence in zip(accepted, sequences, strict=True):
            if event.run not in self.runs or not moves(event.type):
                continue
            moved[event.run].append(sequence)
            about = subject(event)
            if (event.run, event.action) in self.compensated:
                compensated[event.run, event.action] = sequence
            elif about is not None and not self._is_erased(event.run, about):
                new_of[event.run, about].append(
                    StoredEvent.of(self.actor, event, sequence, received)
                )
        self.touched = [self.runs[run].id for run in moved]
        written = self._actions({key: new for key, new in new_of.items() if key[1]})
        of_runs = {run: new for (run, action), new in new_of.items() if not action}
        return [*written, *self._compensate(compensated), *self._runs(moved, of_runs, received)]

    def _compensate(self, sequences: Mapping[FoldKey, int]) -> list[Statement]:
        """What `fold_effects` and `fold_action` make of it, in the rows as they stand."""
        if not sequences:
            return []
        compensated = [self.compensated[key] for key in sequences]
        effects: dict[str, list[int]] = defaultdict(list)
        for one in compensated:
            effects[one.outcome].append(one.effect_id)
        actions = [one.action_id for one in compensated]
        return [
            *((statements.COMPENSATE_EFFECTS, [outcome, ids]) for outcome, ids in effects.items()),
            (statements.COMPENSATE_ACTIONS, [[*sequences.values()], actions, actions]),
        ]

    def _is_erased(self, run: str, action: str) -> bool:
        """What was erased cannot be folded anew: its row stands as it is."""
        return self.runs[run].is_forgotten or (run, action) in self.erased

    def _actions(self, new_of: dict[FoldKey, list[StoredEvent]]) -> list[Statement]:
        found = []
        for (run, action), new in new_of.items():
            row = self.folded_ahead.get((run, action)) or self._fold((run, action), new)
            self.folded[run, action] = row
            of_run = self.runs[run]
            known = self.known_actions.get((of_run.id, action))
            id_ = known.id if known else self.fresh_ids.pop()
            effects = known.effects if known else None
            found.append(Folded(id_, of_run.id, of_run.agent_id, effects, row))
        return write_actions(self.actor.workspace_id, found)

    def _fold(self, key: FoldKey, new: Sequence[StoredEvent]) -> ActionRow:
        prior = [stored for stored in self.prior_of.get(key, ()) if moves_action(stored.type)]
        return fold_action(key[1], [*prior, *new])

    def _runs(
        self, moved: dict[str, list[int]], new_of: dict[str, list[StoredEvent]], received: datetime
    ) -> list[Statement]:
        actions: dict[str, int] = defaultdict(int)
        effects: dict[str, int] = defaultdict(int)
        for (run, action), row in self.folded.items():
            known = self.known_actions.get((self.runs[run].id, action))
            actions[run] += known is None
            effects[run] += len(row.effects) - (known.effects if known else 0)
        touches, checkpoints = [], []
        for run, sequences in moved.items():
            id_, new = self.runs[run].id, new_of.get(run)
            whole = None if new is None else self._run(run, new)
            touches.append(
                RunDelta(id_, min(sequences), max(sequences), actions[run], effects[run], whole)
            )
            checkpoints += [
                (id_, checkpoint_of(stored))
                for stored in new or ()
                if stored.type == EventType.RUN_CHECKPOINT
            ]
        return [
            *touch_runs(touches, self.actor, received),
            *write_checkpoints(checkpoints),
        ]

    def _run(self, run: str, new: list[StoredEvent]) -> RunRow:
        prior = [stored for stored in self.prior_of.get((run, ""), ()) if moves_run(stored.type)]
        return fold_run([*prior, *new])


def moves(type_: str) -> bool:
    """Whether an event of this type moves an action or a run."""
    return moves_action(type_) or moves_run(type_)


def subject(event: ParsedEvent) -> str | None:
    """The action that an event moves, "" if it moves the run itself, None if it moves neither."""
    if moves_action(event.type):
        return event.action or None
    return "" if moves_run(event.type) else None


def stored_event_of(
    event_id: str, type_: str, n: int | None, data: str | None, *rest: Any
) -> StoredEvent:
    """A stored event out of a row of the event table, whose JSON comes as text."""
    sequence, received, actor, trusted, trace = rest
    return StoredEvent(
        event_id, type_, n, msgspec.json.decode(data) if data else {}, sequence, received,
        actor, trusted, msgspec.json.decode(trace) if trace else None,
    )  # fmt: skip
