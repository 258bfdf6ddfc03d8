"""Folding what a batch brought: the rows of the runs and actions that it moves, as statements.

What was recorded of them before has been read under the runs' locks; here the new is added to it.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from amends.protocol.vocabulary import EventType
from ledger.append import projection_rows, statements
from ledger.append.projection_rows import Folded, Touch
from ledger.append.statements import Rows, Statement
from ledger.fold import (
    ActionRow,
    RunRow,
    checkpoint_of,
    fold_action,
    fold_run,
    moves_action,
    moves_run,
)
from ledger.parsed_events import Actor, ParsedEvent, StoredEvent

DATA = 3
"""Its place among the members of an earlier event; NULL once erased."""

# A run, and an action of it; without the action, what is said of the run as a whole.
Name = tuple[str, str]


@dataclass
class KnownRun:
    id: int
    agent_id: int | None
    started_at: datetime | None
    is_forgotten: bool = False
    is_new: bool = False


class Undone(NamedTuple):
    """All that is said of an action: its effect at this position is compensated, or corrected. The
    ids are those of their rows, once they are known to stand.
    """

    position: int
    outcome: str
    action_id: int = 0
    effect_id: int = 0


@dataclass
class Folding:
    """The runs that are locked, what was known of them before, and what became of them.

    `undone` are actions whose rows are changed where they stand; all others are folded anew.
    """

    actor: Actor
    runs: dict[str, KnownRun] = field(default_factory=dict)
    prior_of: dict[Name, list[StoredEvent]] = field(default_factory=lambda: defaultdict(list))
    erased: set[Name] = field(default_factory=set)
    known_actions: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)
    """Row id and count of effects, by the run's row id and the action."""
    fresh_ids: list[int] = field(default_factory=list)
    """Row ids for actions that are new; as many as there may be."""
    touched: list[int] = field(default_factory=list)
    folded: dict[Name, ActionRow] = field(default_factory=dict)
    ahead: dict[Name, ActionRow] = field(default_factory=dict)
    """Actions that were folded before it was known where their rows stand."""
    undone: dict[Name, Undone] = field(default_factory=dict)

    def new_runs(self) -> list[int]:
        return [run.id for run in self.runs.values() if run.is_new]

    def looks_back(self, events: Iterable[ParsedEvent], until: datetime) -> list[Statement]:
        """Earlier events of every action and run that these move and that may have some."""
        about = {(event.run, what) for event in events if (what := subject(event)) is not None}
        old = sorted(
            (run, action) for run, action in about if run in self.runs and not self.runs[run].is_new
        )
        if not old:
            return []
        runs, actions = [run for run, _ in old], [action for _, action in old]
        since = min(self.runs[run].started_at or until for run in runs)
        ids = [self.runs[run].id for run in runs]
        earlier = [runs, actions, self.actor.workspace_id, since, until]
        return [
            (statements.PRIOR_EVENTS, earlier),
            (statements.KNOWN_ACTIONS, [ids, actions]),
        ]

    def remember(self, events: Rows, actions: Rows) -> None:
        """What `looks_back` found."""
        for run, action, *rest in events:
            self.prior_of[run, action].append(stored_event_of(*rest))
            if rest[DATA] is None:
                self.erased.add((run, action))
        self.know(actions)

    def know(self, actions: Rows) -> None:
        """Which actions have a row, as `KNOWN_ACTIONS` found."""
        known = {(run, action): (id_, count) for run, action, id_, count in actions}
        self.known_actions.update(known)

    def rows_of(self, names: Iterable[Name]) -> Statement:
        """Asks which of these actions have a row."""
        named = [(self.runs[run].id, action) for run, action in names if run in self.runs]
        return (statements.KNOWN_ACTIONS, [[run for run, _ in named], [one for _, one in named]])

    def standing(self, undone: Mapping[Name, Undone]) -> Statement:
        """Asks which of these effects stand in a row, of actions of which nothing was erased."""
        runs, actions, ids, positions = zip(
            *((run, action, self.runs[run].id, one.position)
              for (run, action), one in undone.items()), strict=True,
        )  # fmt: skip
        since = min((at for run in runs if (at := self.runs[run].started_at)), default=None)
        values = [list(runs), list(actions), list(ids), list(positions)]
        return (statements.STANDING_EFFECTS, [*values, self.actor.workspace_id, since])

    def fold_ahead(
        self,
        events: Iterable[ParsedEvent],
        stored_events: Iterable[StoredEvent],
        names: Container[Name],
    ) -> None:
        """Fold these actions, of which everything is known, with all that is said of them now."""
        new: dict[Name, list[StoredEvent]] = defaultdict(list)
        for event, stored in zip(events, stored_events, strict=True):
            if (event.run, event.action) in names and moves_action(event.type):
                new[event.run, event.action].append(stored)
        self.ahead = {name: self._fold(name, of_action) for name, of_action in new.items()}

    def add(
        self, accepted: Iterable[ParsedEvent], sequences: Iterable[int], received: datetime
    ) -> list[Statement]:
        """What follows from the accepted events, which have these sequence numbers."""
        new_of: dict[Name, list[StoredEvent]] = defaultdict(list)
        moved: dict[str, list[int]] = defaultdict(list)
        undone: dict[Name, int] = {}
        by_desk, name, trusted = self.actor.is_desk, self.actor.name, self.actor.trusted
        for event, sequence in zip(accepted, sequences, strict=True):
            if event.run not in self.runs or not moves(event.type):
                continue
            moved[event.run].append(sequence)
            about = subject(event)
            if (event.run, event.action) in self.undone:
                undone[event.run, event.action] = sequence
            elif about is not None and not self._is_erased(event.run, about):
                new_of[event.run, about].append(
                    StoredEvent(event.id, event.type, event.n, event.data, sequence, received,
                                by_desk, name, trusted, event.trace)
                )  # fmt: skip
        self.touched = [self.runs[run].id for run in moved]
        written = self._actions({name: new for name, new in new_of.items() if name[1]})
        of_runs = {run: new for (run, action), new in new_of.items() if not action}
        return [*written, *self._undo(undone), *self._runs(moved, of_runs, received)]

    def _undo(self, sequences: Mapping[Name, int]) -> list[Statement]:
        """What `fold_effects` and `fold_action` make of it, in the rows as they stand."""
        if not sequences:
            return []
        undone = [(self.undone[name], sequence) for name, sequence in sequences.items()]
        effects: dict[str, list[int]] = defaultdict(list)
        for one, _ in undone:
            effects[one.outcome].append(one.effect_id)
        actions = [one.action_id for one, _ in undone]
        return [
            *((statements.COMPENSATE_EFFECTS, [outcome, ids]) for outcome, ids in effects.items()),
            (statements.COMPENSATE_ACTIONS, [[at for _, at in undone], actions, actions]),
        ]

    def _is_erased(self, run: str, action: str) -> bool:
        """What was erased cannot be folded anew: its row stands as it is."""
        return self.runs[run].is_forgotten or (run, action) in self.erased

    def _actions(self, new_of: dict[Name, list[StoredEvent]]) -> list[Statement]:
        found = []
        for (run, action), new in new_of.items():
            row = self.ahead.get((run, action)) or self._fold((run, action), new)
            self.folded[run, action] = row
            of_run = self.runs[run]
            id_, effects = self.known_actions.get((of_run.id, action), (None, None))
            id_ = self.fresh_ids.pop() if id_ is None else id_
            found.append(Folded(id_, of_run.id, of_run.agent_id, effects, row))
        return projection_rows.write_actions(self.actor.workspace_id, found)

    def _fold(self, name: Name, new: Sequence[StoredEvent]) -> ActionRow:
        known = [stored for stored in self.prior_of.get(name, ()) if moves_action(stored.type)]
        return fold_action(name[1], [*known, *new])

    def _runs(
        self, moved: dict[str, list[int]], new_of: dict[str, list[StoredEvent]], received: datetime
    ) -> list[Statement]:
        actions: dict[str, int] = defaultdict(int)
        effects: dict[str, int] = defaultdict(int)
        for (run, action), row in self.folded.items():
            known = self.known_actions.get((self.runs[run].id, action))
            actions[run] += known is None
            effects[run] += row.standing - (known[1] if known else 0)
        touches, checkpoints = [], []
        for run, sequences in moved.items():
            id_, new = self.runs[run].id, new_of.get(run)
            whole = None if new is None else self._run(run, new)
            touches.append(
                Touch(id_, min(sequences), max(sequences), actions[run], effects[run], whole)
            )
            checkpoints += [
                (id_, checkpoint_of(stored))
                for stored in new or ()
                if stored.type == EventType.RUN_CHECKPOINT
            ]
        return [
            *projection_rows.touch_runs(touches, self.actor, received),
            *projection_rows.write_checkpoints(checkpoints),
        ]

    def _run(self, run: str, new: list[StoredEvent]) -> RunRow:
        earlier = [stored for stored in self.prior_of.get((run, ""), ()) if moves_run(stored.type)]
        return fold_run([*earlier, *new])


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
    sequence, received, by_desk, actor, trusted, trace = rest
    return StoredEvent(
        event_id, type_, n, msgspec.json.decode(data) if data else {}, sequence, received, by_desk,
        actor, trusted, msgspec.json.decode(trace) if trace else None,
    )  # fmt: skip
