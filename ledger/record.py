"""Recording: the one way events come in, whoever speaks and whichever connection carries it.

The core does no I/O. It is a generator that yields statements and is sent their rows, so that the
hot door (psycopg's async pool), `begin` and the desk's own voice (Django's connection) share it.
All of it happens in the caller's transaction: events, what they add up to, and their place in the
queue of the sealer are durable together or not at all. The number of round trips does not depend on
the number of events.

Rows are locked in one order: runs by their ids, then event ids, then what hangs from the runs.
Whoever locks an action first must lock its run before.
"""

import os
from collections import defaultdict
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from ledger import projections, statements
from ledger.canonical import content_digest, salted_digest
from ledger.fold import ActionRow, checkpoint_of, fold_action, fold_run, moves_action, moves_run
from ledger.said import Answer, Fact, Problem, Said, Speaker, problem
from ledger.statements import LastWrites, Statement, joined, joined_numbers
from ledger.wire import moment_text

SALT_BYTES = 32
# Who held the lock before us may have read the clock after us.
OTHERS_AHEAD = timedelta(hours=1)
Rows = list[tuple[Any, ...]]
Steps = Generator[list[Statement], list[Rows], "Recorded"]

CONFLICT = problem(
    "conflict",
    "This id was used for another event",
    409,
    "Send the other statement under a new id.",
)
NOT_YOURS = problem("not-your-run", "The run belongs to another agent", 403)


@dataclass
class Recorded:
    """What became of the events, in their order; and which runs now stand otherwise, by row id."""

    answers: list[Answer]
    runs: list[int] = field(default_factory=list)
    actions: dict[tuple[str, str], ActionRow] = field(default_factory=dict)


@dataclass
class KnownRun:
    id: int
    started_at: datetime | None
    is_new: bool = False


def record(speaker: Speaker, events: Sequence[Said]) -> Steps:
    """Write down `events`, fold them, and say per event what became of it."""
    batch = Batch(speaker, events)
    yield from batch.meet_runs()
    yield from batch.meet_keys()
    if not batch.accepted and not batch.conflicts:
        if batch.new_runs():
            yield LastWrites([(statements.FORGET_RUNS, [batch.new_runs()])])
        return Recorded(batch.answered())
    yield LastWrites(batch.writes())
    return Recorded(batch.answered(), batch.touched, batch.folded)


class Batch:
    """The state of one recording between its round trips."""

    def __init__(self, speaker: Speaker, events: Sequence[Said]) -> None:
        self.speaker = speaker
        self.events = events
        self.problems: dict[int, Problem] = {}
        self.duplicates: set[int] = set()
        self.contents = [content_digest(event.content) for event in events]
        self.first = self._first_of_each_id()
        self.runs: dict[str, KnownRun] = {}
        self.places: list[int] = []
        self.received: datetime
        self.accepted: list[int] = []
        self.prior_of: dict[tuple[str, str], list[Fact]] = defaultdict(list)
        self.had_effects: dict[tuple[int, str], int] = {}
        self.touched: list[int] = []
        self.folded: dict[tuple[str, str], ActionRow] = {}

    def _first_of_each_id(self) -> dict[str, int]:
        """The first event of each id; a later one of the batch is its duplicate or conflict."""
        first: dict[str, int] = {}
        for index, event in enumerate(self.events):
            known = first.setdefault(event.id, index)
            if known != index and self.contents[known] == self.contents[index]:
                self.duplicates.add(index)
            elif known != index:
                self.problems[index] = CONFLICT
        return first

    # Runs first: they are locked in one order, and a key may speak only of its own agent's.

    def meet_runs(self) -> Generator[list[Statement], list[Rows], None]:
        names, fresh = self._run_names()
        workspace, agent = self.speaker.workspace_id, self.speaker.agent_id
        lock: Statement = (statements.LOCK_RUNS, [names, workspace])
        found: list[Statement] = [(statements.PLACES, [len(self.first)])]
        if names:
            found.append(lock)
        if fresh:
            found.append((statements.NEW_RUNS, [workspace, agent, fresh]))
        rows = yield found
        self.places, self.received = rows[0][0]
        owners = {}
        for id_, name, owner, started_at in rows[1] if names else ():
            self.runs[name], owners[name] = KnownRun(id_, started_at), owner
        for id_, name in rows[2] if fresh else ():
            self.runs[name] = KnownRun(id_, None, is_new=True)
        if any(name not in self.runs for name in fresh):
            (rows_,) = yield [lock]  # somebody else opened them just now
            for id_, name, owner, started_at in rows_:
                if name not in self.runs:
                    self.runs[name], owners[name] = KnownRun(id_, started_at), owner
        if not self.speaker.is_desk:
            self._refuse_runs_of_others({n for n, owner in owners.items() if owner != agent})

    def _run_names(self) -> tuple[list[str], list[str]]:
        """The runs that the events move, and those of them that may be opened by being named."""
        events = [self.events[index] for index in self.first.values()]
        names = sorted({event.run for event in events if event.run and _moves(event)})
        if not self.speaker.is_desk:
            return names, names
        return names, sorted(
            {event.run for event in events if event.run in set(names) and _opens(event)}
        )

    def _refuse_runs_of_others(self, names: set[str]) -> None:
        for index, event in enumerate(self.events):
            if event.run in names and index not in self.problems:
                self.problems[index] = NOT_YOURS
                self.duplicates.discard(index)

    # Then the ids, which tell what is new; and in the same round trip all that the fold will need.

    def meet_keys(self) -> Generator[list[Statement], list[Rows], None]:
        speaker = self.speaker
        fresh = sorted(
            (event_id, index, place)
            for (event_id, index), place in zip(self.first.items(), self.places, strict=True)
            if index not in self.problems
        )
        if not fresh:
            return
        keys: Statement = (
            statements.NEW_KEYS,
            [
                speaker.workspace_id, self.received, joined(id_ for id_, _, _ in fresh),
                joined(self.contents[index].hex() for _, index, _ in fresh),
                joined_numbers(place for _, _, place in fresh),
            ],
        )  # fmt: skip
        rows = yield [keys, *self._looks_back()]
        new = {id_ for (id_,) in rows[0]}
        if len(rows) > 1:
            self._remember(rows[1], rows[2])
        missing = [id_ for id_, _, _ in fresh if id_ not in new]
        if missing:
            known = (yield [(statements.KNOWN_KEYS, [speaker.workspace_id, missing])])[0]
            self._compare({id_: bytes(content) for id_, content in known})
        self.accepted = sorted(index for id_, index, _ in fresh if id_ in new)

    def _looks_back(self) -> list[Statement]:
        """Earlier events of every action and run that the batch touches and that may have some."""
        events = [self.events[index] for index in self.first.values()]
        moved = {(e.run, e.action) for e in events if e.action and moves_action(e.type)}
        moved |= {(e.run, "") for e in events if moves_run(e.type)}
        old = sorted(
            (run, action) for run, action in moved if run in self.runs and not self.runs[run].is_new
        )
        if not old:
            return []
        runs, actions = [run for run, _ in old], [action for _, action in old]
        since = min(self.runs[run].started_at or self.received for run in runs)
        ids = [self.runs[run].id for run in runs]
        return [
            (
                statements.PRIOR_EVENTS,
                [runs, actions, self.speaker.workspace_id, since, self.received + OTHERS_AHEAD],
            ),
            (statements.KNOWN_ACTIONS, [ids, actions]),
        ]

    def _remember(self, events: Rows, actions: Rows) -> None:
        for run, action, *rest in events:
            self.prior_of[run, action].append(fact_of(*rest))
        self.had_effects = {(run_id, action): count for run_id, action, count in actions}

    def _compare(self, known: dict[str, bytes]) -> None:
        for index, event in enumerate(self.events):
            if event.id not in known or index in self.problems:
                continue
            if known[event.id] == self.contents[index]:
                self.duplicates.add(index)
            else:
                self.problems[index] = CONFLICT
                self.duplicates.discard(index)

    # Last the writes, in one round trip.

    def writes(self) -> list[Statement]:
        place_of = dict(zip(self.first.values(), self.places, strict=True))
        found = [*self._event_rows(place_of), *self._conflict_rows()]
        facts = {index: self._fact(index, place_of[index]) for index in self.accepted}
        found += self._action_rows(facts)
        found += self._run_rows(facts)
        unused = [id_ for id_ in self.new_runs() if id_ not in set(self.touched)]
        if unused:
            found.append((statements.FORGET_RUNS, [unused]))
        return found

    @property
    def conflicts(self) -> list[int]:
        return [index for index, what in self.problems.items() if what is CONFLICT]

    def new_runs(self) -> list[int]:
        return [run.id for run in self.runs.values() if run.is_new]

    def _event_rows(self, place_of: dict[int, int]) -> list[Statement]:
        if not self.accepted:
            return []
        speaker, events = self.speaker, [self.events[index] for index in self.accepted]
        places = [place_of[index] for index in self.accepted]
        noise = os.urandom(SALT_BYTES * len(events))
        salts = [noise[i : i + SALT_BYTES] for i in range(0, len(noise), SALT_BYTES)]
        return [
            (
                statements.NEW_EVENTS,
                [
                    self.received, speaker.workspace_id, speaker.kind, speaker.name,
                    speaker.key_prefix, speaker.trusted, joined_numbers(places),
                    joined(e.id for e in events), joined(e.type for e in events),
                    joined(moment_text(e.time) if e.time else None for e in events),
                    joined(e.run for e in events), joined(e.action for e in events),
                    joined(None if e.n is None else str(e.n) for e in events),
                    joined(projections.json_text(e.trace) for e in events),
                    joined(projections.json_text(e.data) for e in events),
                    joined(salt.hex() for salt in salts),
                    joined(salted_digest(s, e.content).hex()
                           for s, e in zip(salts, events, strict=True)),
                ],
            ),
            (
                statements.NEW_UNSEALED,
                [speaker.workspace_id, self.received, joined_numbers(places)],
            ),
        ]  # fmt: skip

    def _conflict_rows(self) -> list[Statement]:
        if not self.conflicts:
            return []
        speaker = self.speaker
        ids = [self.events[index].id for index in self.conflicts]
        contents = [self.contents[index] for index in self.conflicts]
        values = [speaker.workspace_id, speaker.key_prefix, self.received, ids, contents]
        return [(statements.NEW_CONFLICTS, values)]

    def _fact(self, index: int, place: int) -> Fact:
        event, speaker = self.events[index], self.speaker
        return Fact(
            event.id, event.type, event.n, event.data, place, self.received, speaker.is_desk,
            speaker.name, speaker.trusted, event.trace,
        )  # fmt: skip

    def _action_rows(self, facts: dict[int, Fact]) -> list[Statement]:
        grouped: dict[tuple[str, str], list[Fact]] = defaultdict(list)
        for index, fact in facts.items():
            event = self.events[index]
            if event.action and moves_action(event.type) and event.run in self.runs:
                grouped[event.run, event.action].append(fact)
        for (run, action), new in grouped.items():
            earlier = [f for f in self.prior_of[run, action] if moves_action(f.type)]
            self.folded[run, action] = fold_action(action, [*earlier, *new])
        rows = [(self.runs[run].id, row) for (run, _), row in self.folded.items()]
        return projections.write_actions(self.speaker.workspace_id, rows, self.had_effects)

    def _run_rows(self, facts: dict[int, Fact]) -> list[Statement]:
        about: dict[str, list[Fact]] = defaultdict(list)
        every: dict[str, list[int]] = defaultdict(list)
        for index, fact in facts.items():
            event = self.events[index]
            if event.run in self.runs and _moves(event):
                every[event.run].append(fact.place)
                if moves_run(event.type):
                    about[event.run].append(fact)
        folded, checkpoints = [], []
        for run, new in about.items():
            earlier = [f for f in self.prior_of[run, ""] if moves_run(f.type)]
            folded.append((self.runs[run].id, fold_run([*earlier, *new])))
            checkpoints += [
                (self.runs[run].id, checkpoint_of(f)) for f in new if f.type == "run.checkpoint"
            ]
        self.touched = [self.runs[run].id for run in every]
        return [
            *self._touch(every),
            *projections.write_runs(folded),
            *projections.write_checkpoints(checkpoints),
        ]

    def _touch(self, places: dict[str, list[int]]) -> list[Statement]:
        if not places:
            return []
        actions: dict[str, int] = defaultdict(int)
        effects: dict[str, int] = defaultdict(int)
        for (run, action), row in self.folded.items():
            known = self.had_effects.get((self.runs[run].id, action))
            actions[run] += known is None
            effects[run] += row.standing - (known or 0)
        speaker, runs = self.speaker, list(places)
        values = [
            self.received, self.received, not speaker.is_desk, self.received,
            float(speaker.stuck_after_seconds), [self.runs[run].id for run in runs],
            [min(places[run]) for run in runs], [max(places[run]) for run in runs],
            [actions[run] for run in runs], [effects[run] for run in runs],
        ]  # fmt: skip
        return [(statements.TOUCH_RUNS, values)]

    def answered(self) -> list[Answer]:
        return [self._answer(index, event) for index, event in enumerate(self.events)]

    def _answer(self, index: int, event: Said) -> Answer:
        if index in self.problems:
            return Answer(event.id, "rejected", self.problems[index])
        return Answer(event.id, "duplicate" if index in self.duplicates else "accepted")


def fact_of(event_id: str, type_: str, n: int | None, data: str | None, *rest: Any) -> Fact:
    """A fact out of a row of the event table, whose JSON comes as text."""
    place, received, by_desk, actor, trusted, trace = rest
    return Fact(
        event_id, type_, n, msgspec.json.decode(data) if data else {}, place, received, by_desk,
        actor, trusted, msgspec.json.decode(trace) if trace else None,
    )  # fmt: skip


def _moves(event: Said) -> bool:
    return moves_run(event.type) or moves_action(event.type)


def _opens(event: Said) -> bool:
    return event.type.startswith(("plan.", "step."))
