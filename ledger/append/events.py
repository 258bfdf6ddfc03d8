"""Append: how events get into the ledger, whoever the actor is.

The core does no I/O. It is a generator that yields statements and is sent their rows, so that the
edge (psycopg's async pool), `begin` and the desk's own events (Django's connection) share it.
Everything happens in the caller's transaction: the events, the rows that are folded from them and
their entries in the sealer's queue are committed together or not at all. The number of round trips
does not depend on the number of events.

Locks are taken in this order: runs by their ids, then event ids, then actions, attempts and
effects. Whoever locks an action must have locked its run before.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, NamedTuple

from amends.protocol.canonical import content_digest, salted_digest
from amends.protocol.vocabulary import EventType
from edge.asgi import Problem, Refused, problem
from ledger import timestamps
from ledger.append import statements
from ledger.append.projection import (
    CompensatedEffect,
    Folding,
    FoldKey,
    LockedRun,
    locked_runs,
    moves,
)
from ledger.append.statements import (
    LastWrites,
    Statement,
    StatementGenerator,
    StatementsWithWork,
    joined,
    joined_numbers,
    json_text,
)
from ledger.fold.actions import ActionRow, judged_saga, planned_alone
from ledger.fold.effects import compensation_of, name_of
from ledger.parsed_events import Actor, EventResult, ParsedEvent, StoredEvent

SALT_BYTES = 32
# Who held the lock before us may have read the clock after us.
OTHERS_AHEAD = timedelta(hours=1)

CONFLICT = problem(
    "conflict",
    "This id was used for another event",
    409,
    "Send the other statement under a new id.",
)
NOT_YOURS = problem("not-your-run", "The run belongs to another agent", 403)
FORGOTTEN = problem("forgotten", "What was said here is erased", 410, "Nothing more is kept of it.")


def salted(events: Sequence[ParsedEvent]) -> tuple[bytes, list[bytes]]:
    """Fresh salts of SALT_BYTES each, end to end, and per event the digest that is sealed."""
    salts = os.urandom(SALT_BYTES * len(events))
    each = [salts[i : i + SALT_BYTES] for i in range(0, len(salts), SALT_BYTES)]
    return salts, [salted_digest(s, e.content) for s, e in zip(each, events, strict=True)]


@dataclass
class RecordedBatch:
    """The result of each event, in their order, and the rows of the actions that they moved."""

    results: list[EventResult]
    actions: dict[tuple[str, str], ActionRow] = field(default_factory=dict)


def record(
    actor: Actor, events: Sequence[ParsedEvent], *more: Statement
) -> StatementGenerator[RecordedBatch]:
    """Insert `events`, fold them, and return the result of each. The statements `more` are sent
    with the writes.
    """
    batch = AppendBatch(actor, events)
    yield from batch.lock_runs()
    yield from batch.insert_ids()
    return (yield from batch.write(*more))


def record_or_refuse(
    actor: Actor, events: Sequence[ParsedEvent], *more: Statement
) -> StatementGenerator[RecordedBatch]:
    """The same; raises Refused for the first event that is rejected. That is before the writes,
    with which COMMIT may be sent, so the caller rolls back.
    """
    batch = AppendBatch(actor, events)
    yield from batch.lock_runs()
    return (yield from batch.insert_or_refuse(*more))


class AppendBatch:
    """The state of one recording between its round trips: `lock_runs`, `insert_ids`, `write`."""

    def __init__(self, actor: Actor, events: Sequence[ParsedEvent]) -> None:
        self.actor = actor
        self.events = events
        self.problems: dict[int, Problem] = {}
        self.duplicates: set[int] = set()
        self.contents = [content_digest(event.content) for event in events]
        self.first = self._first_of_each_id()
        self.folding = Folding(actor)
        self.sequences: list[int] = []
        self.received: datetime
        self.accepted: list[int] = []

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

    # Runs first: they are locked in one order, and a key may record only in its own agent's runs.

    def lock_runs(self) -> StatementGenerator[None]:
        names, fresh = self._run_names()
        workspace, agent = self.actor.workspace_id, self.actor.agent_id
        lock: Statement = (statements.LOCK_RUNS, [names, workspace])
        found: list[Statement] = [(statements.SEQUENCES, [self._action_count(), len(self.first)])]
        if names:
            found.append(lock)
        if fresh:
            found.append((statements.NEW_RUNS, [workspace, agent, fresh]))
        rows = yield found
        self.sequences, self.received, ids = rows[0][0]
        self.folding.fresh_ids = ids or []
        runs = self.folding.runs
        runs |= locked_runs(rows[1] if names else [])
        for id_, name in rows[2] if fresh else ():
            runs[name] = LockedRun(id_, agent, None, is_new=True)
        if any(name not in runs for name in fresh):
            (others,) = yield [lock]  # somebody else opened them just now
            self.folding.runs = runs = locked_runs(others) | runs
        if not self.actor.is_desk:
            self._refuse({n for n, run in runs.items() if run.agent_id != agent}, NOT_YOURS)
            self._refuse({n for n, run in runs.items() if run.is_forgotten}, FORGOTTEN)
            yield from self._refuse_erased({n for n, r in runs.items() if r.has_erased_actions})

    def _action_count(self) -> int:
        """How many actions the events move, known ones among them."""
        events = [self.events[index] for index in self.first.values()]
        return len({(event.run, event.action) for event in events if event.action})

    def _run_names(self) -> tuple[list[str], list[str]]:
        """The runs that the events move, and those of them that may be opened by being named."""
        events = [self.events[index] for index in self.first.values()]
        moving = [event for event in events if event.run and moves(event.type)]
        names = sorted({event.run for event in moving})
        if not self.actor.is_desk:
            return names, names
        may_open = {event.run for event in events if event.type.startswith(("plan.", "step."))}
        return names, sorted(may_open.intersection(names))

    def _refuse_erased(self, names: set[str]) -> StatementGenerator[None]:
        """Refuse what is said of single actions that were erased, in runs that go on."""
        about = {(event.run, event.action) for event in self.events if event.run in names}
        if not about:
            return
        pairs = [list(column) for column in zip(*sorted(about), strict=True)]
        (rows,) = yield [(statements.ERASED_ACTIONS, [*pairs, self.actor.workspace_id])]
        erased = {(run, action) for run, action in rows}
        self._refuse_those(lambda event: (event.run, event.action) in erased, FORGOTTEN)

    def _refuse(self, names: set[str], why: Problem) -> None:
        if names:
            self._refuse_those(lambda event: event.run in names, why)

    def _refuse_those(self, which: Callable[[ParsedEvent], bool], why: Problem) -> None:
        for index, event in enumerate(self.events):
            if index not in self.problems and which(event):
                self.problems[index] = why
                self.duplicates.discard(index)

    # Then the event ids: those that are there already are duplicates or conflicts. The same round
    # trip reads what the fold needs.

    def insert_ids(self) -> StatementGenerator[None]:
        actor = self.actor
        fresh = sorted(
            (event_id, index, sequence)
            for (event_id, index), sequence in zip(self.first.items(), self.sequences, strict=True)
            if index not in self.problems
        )
        if not fresh:
            return
        keys: Statement = (
            statements.NEW_KEYS,
            [
                actor.workspace_id, self.received,
                b"".join(self.contents[index] for _, index, _ in fresh),
                joined(id_ for id_, _, _ in fresh),
                joined_numbers(sequence for _, _, sequence in fresh),
            ],
        )  # fmt: skip
        events = [self.events[index] for index in self.first.values()]
        rows = yield [keys, *self.folding.prior_queries(events, self.received + OTHERS_AHEAD)]
        new = {id_ for (id_,) in rows[0]}
        if len(rows) > 1:
            self.folding.add_prior(rows[1], rows[2])
        missing = [id_ for id_, _, _ in fresh if id_ not in new]
        if missing:
            known = (yield [(statements.KNOWN_KEYS, [actor.workspace_id, missing])])[0]
            self._compare({id_: bytes(content) for id_, content in known})
        self.accepted = sorted(index for id_, index, _ in fresh if id_ in new)

    def _compare(self, known: dict[str, bytes]) -> None:
        for index, event in enumerate(self.events):
            if event.id not in known or index in self.problems:
                continue
            if known[event.id] == self.contents[index]:
                self.duplicates.add(index)
            else:  # of what was erased nobody knows what it was
                self.problems[index] = CONFLICT if known[event.id] else FORGOTTEN
                self.duplicates.discard(index)

    # Last the writes, in one round trip.

    def write(self, *more: Statement) -> StatementGenerator[RecordedBatch]:
        if not self.accepted and not self.conflicts:
            yield from self.discard(*more)
            return RecordedBatch(self._results())
        yield LastWrites([*self._writes(), *more])
        return RecordedBatch(self._results(), self.folding.folded)

    def discard(self, *more: Statement) -> StatementGenerator[None]:
        """Write no event, and delete the runs that were opened for it."""
        opened = self.folding.new_runs()
        writes = [*([(statements.FORGET_RUNS, [opened])] if opened else []), *more]
        if writes:
            yield LastWrites(writes)

    def insert_or_refuse(self, *more: Statement) -> StatementGenerator[RecordedBatch]:
        """`insert_ids` and `write`, with Refused between them for the first rejected event."""
        yield from self.insert_ids()
        if self.problems:
            raise Refused(self.problems[min(self.problems)])
        return (yield from self.write(*more))

    def _writes(self) -> list[Statement]:
        sequence_of = dict(zip(self.first.values(), self.sequences, strict=True))
        accepted = [self.events[index] for index in self.accepted]
        sequences = [sequence_of[index] for index in self.accepted]
        found = [
            *self._event_rows(accepted, sequences),
            *self._conflict_rows(),
            *self.folding.fold(accepted, sequences, self.received),
        ]
        unused = set(self.folding.new_runs()) - set(self.folding.touched)
        if unused:
            found.append((statements.FORGET_RUNS, [sorted(unused)]))
        return found

    @property
    def conflicts(self) -> list[int]:
        return [index for index, what in self.problems.items() if what is CONFLICT]

    def _event_rows(self, events: list[ParsedEvent], sequences: list[int]) -> list[Statement]:
        if not events:
            return []
        actor = self.actor
        salts, digests = salted(events)
        numbers = joined_numbers(sequences)
        return [
            (
                statements.NEW_EVENTS,
                [
                    self.received, actor.workspace_id, actor.kind, actor.name, actor.key_prefix,
                    actor.trusted, salts, b"".join(digests), numbers,
                    *statements.event_lists(events),
                ],
            ),
            (statements.NEW_UNSEALED, [actor.workspace_id, self.received, numbers]),
        ]  # fmt: skip

    def _conflict_rows(self) -> list[Statement]:
        if not self.conflicts:
            return []
        actor = self.actor
        ids = [self.events[index].id for index in self.conflicts]
        contents = [self.contents[index] for index in self.conflicts]
        values = [actor.workspace_id, actor.key_prefix, self.received, ids, contents]
        return [(statements.NEW_CONFLICTS, values)]

    def _results(self) -> list[EventResult]:
        return [self._result(index, event) for index, event in enumerate(self.events)]

    def _result(self, index: int, event: ParsedEvent) -> EventResult:
        if index in self.problems:
            return EventResult(event.id, "rejected", self.problems[index])
        if index in self.duplicates:
            return EventResult(event.id, "duplicate")
        return EventResult(event.id, "accepted", None, warning(event, self.received))


def warning(event: ParsedEvent, received: datetime) -> Problem | None:
    """What whoever sent an event should hear though it is kept as it was said."""
    if event.unread:
        detail = f"{event.unread}. Kept as said."
        return problem("unread", "Nobody reads some of it", 200, detail)
    return timestamps.warning(event.time, received)


# Deferred append: the desk's events that go into the ledger and are not folded at once.
#
# A step has four events on the way to its end, and only the last changes what anybody does. The
# others are inserted by one statement, durable and sealed like all events. The next event of the
# action that is recorded in the usual way (`record`) folds them too, for the fold reads all events
# of an action. Until then the action's row lags behind its events, so every code path that follows
# a deferred append must end with an event that is recorded.


class SequenceRange(NamedTuple):
    """The sequence numbers of some events, in their order, and the moment they were drawn at."""

    sequences: Sequence[int]
    received: datetime


def append_deferred(
    actor: Actor, events: Sequence[ParsedEvent]
) -> StatementGenerator[list[StoredEvent]]:
    """Insert `events`, whose ids are new; returns them as the fold reads them, in their order."""
    (rows,) = yield [deferred_statement(actor, events)]
    sequences = {event_id: sequence for event_id, sequence, _ in rows}
    received = datetime.fromisoformat(rows[0][2])
    return [StoredEvent.of(actor, event, sequences[event.id], received) for event in events]


def deferred_statement(
    actor: Actor, events: Sequence[ParsedEvent], drawn: SequenceRange | None = None
) -> Statement:
    """Without `drawn` it draws the sequence numbers itself."""
    salts, digests = salted(events)
    contents = b"".join([content_digest(event.content) for event in events])
    values = [
        contents, salts, b"".join(digests),
        *([] if drawn is None else [joined_numbers(drawn.sequences)]),
        *statements.event_lists(events, statements.DESK_COLUMNS),
        *[actor.workspace_id] * 3, actor.kind, actor.name,
    ]  # fmt: skip
    if drawn is None:
        return statements.DEFERRED_DRAWING, values
    return statements.DEFERRED_DRAWN, [drawn.received, *values]


# Completion append: the events with which the steps of plans end, folded from what is in hand.
#
# `record` reads all earlier events of an action before it folds. Here that is not needed: this
# process has appended every event of the step itself and still has them, and of the agent's action
# that the step undoes only one effect changes, to compensated. What is not as usual (a row that is
# missing, payloads that were erased) is folded from its earlier events. A rebuild gives the same
# rows.


def append_completions(
    actor: Actor, events: Sequence[ParsedEvent], earlier: Mapping[FoldKey, Sequence[StoredEvent]]
) -> StatementGenerator[bool]:
    """Record `events`, whose ids are new, and fold them; True where that was done.

    `earlier` has of some actions, which have no row yet, all earlier events. False, and nothing is
    written, if a run is not there or is erased.
    """
    names = sorted({event.run for event in events})
    actions = len({(event.run, event.action) for event in events})
    rows, ((sequences, received, ids),) = yield [
        (statements.LOCK_RUNS, [names, actor.workspace_id]),
        (statements.SEQUENCES, [actions, len(events)]),
    ]
    folding = Folding(actor, locked_runs(rows), fresh_ids=ids or [])
    if len(rows) < len(names) or any(run.is_forgotten for run in folding.runs.values()):
        return False
    folding.prior_of.update({key: list(known) for key, known in earlier.items()})
    said = _single_compensations(events)
    _, known, *standing = yield StatementsWithWork(
        [
            deferred_statement(actor, events, SequenceRange(sequences, received)),
            folding.known_query(earlier),
            *([folding.standing_query(said)] if said else []),
        ],
        lambda: folding.fold_ahead(events, sequences, received, earlier.keys()),
    )
    folding.add_known(known)
    for run, action, action_id, effect_id in chain(*standing):
        effect = said[run, action]._replace(action_id=action_id, effect_id=effect_id)
        folding.compensated[run, action] = effect
    known_keys = folding.compensated.keys() | earlier
    unknown = [event for event in events if (event.run, event.action) not in known_keys]
    look_back = folding.prior_queries(unknown, received + OTHERS_AHEAD)
    if look_back:
        folding.add_prior(*(yield look_back))
    yield folding.fold(events, sequences, received)
    return True


def _single_compensations(events: Sequence[ParsedEvent]) -> dict[FoldKey, CompensatedEffect]:
    """The actions of which nothing is said but that one effect of theirs is compensated, and which
    target it was on.
    """
    found: dict[FoldKey, CompensatedEffect] = {}
    others: set[FoldKey] = set()
    for event in events:
        key = (event.run, event.action)
        positions, target = event.data.get("positions") or [], event.data.get("target")
        is_one = event.type == EventType.ACTION_COMPENSATED and len(positions) == 1
        if not is_one or key in found or not isinstance(target, dict):
            others.add(key)
        else:
            outcome = compensation_of(event.data)
            found[key] = CompensatedEffect(positions[0], name_of(target), outcome)
    return {key: one for key, one in found.items() if key not in others}


# The usual begin: an action that is not known yet is planned and started at once.
#
# Its row is folded from these two events alone, so it is computed here, before any statement. The
# database function `ledger_begin` (in the last migration of that name) checks that the action is
# not known, and inserts. It leaves the same rows as `record`, which a test compares, with three
# statements instead of a dozen.

ATTEMPT_CHARACTERS_MAX = 120
RETRY_CHARACTERS_MAX = 10

# The parameters of `ledger_begin`: the names and types that its migration gives them, in the order
# of `begin_arguments`.
BEGIN_SIGNATURE = {
    "here": "bigint", "of_agent": "bigint", "said_by": "text", "by_key": "text",
    "is_trusted": "boolean", "of_run": "text", "of_action": "text", "at_n": "integer",
    "at_time": "timestamptz", "traced": "jsonb",
    "planned_id": "text", "planned_data": "jsonb", "planned_content": "bytea",
    "planned_salt": "bytea", "planned_digest": "bytea",
    "started_id": "text", "started_data": "jsonb", "started_content": "bytea",
    "started_salt": "bytea", "started_digest": "bytea",
    "with_tool": "text", "in_class": "text", "at_risk": "text", "in_saga": "text", "for_op": "text",
    "under_key": "text", "with_targets": "jsonb", "with_args": "jsonb", "with_digest": "text",
    "with_intent": "jsonb", "with_compensation": "jsonb", "with_before": "jsonb",
    "try": "text", "tried_by": "text",
    "labels_seen": "jsonb", "may_follow_pivot": "boolean", "stuck_after": "interval",
}  # fmt: skip
_PASSED = {"interval": "make_interval(secs => %b)"}
BEGIN_PARAMETERS = ", ".join(_PASSED.get(kind, f"%b::{kind}") for kind in BEGIN_SIGNATURE.values())


def begin_arguments(
    actor: Actor,
    planned: ParsedEvent,
    started: ParsedEvent,
    *,
    labels: Mapping[str, Any] | None,
    may_follow_pivot: bool,
) -> list[Any]:
    """The arguments of `ledger_begin`. With `labels` the run must have exactly these, else any."""
    row = planned_alone(planned.action, planned.data)
    saga = row.saga or judged_saga([started.data])
    return [
        actor.workspace_id, actor.agent_id, actor.name, actor.key_prefix, actor.trusted,
        planned.run, planned.action, planned.n, planned.time, json_text(planned.trace),
        *_event(planned), *_event(started),
        row.tool, row.action_class, row.risk, saga, row.op, row.key, json_text(row.targets),
        json_text(row.args), row.args_digest, json_text(row.intent), json_text(row.compensation),
        json_text(row.before),
        started.data["attempt"][:ATTEMPT_CHARACTERS_MAX],
        started.data.get("retry", "")[:RETRY_CHARACTERS_MAX],
        json_text(labels), may_follow_pivot, float(actor.stuck_after_seconds),
    ]  # fmt: skip


def _event(parsed: ParsedEvent) -> tuple[str, str, bytes, bytes, bytes]:
    salt, (digest,) = salted([parsed])
    return parsed.id, parsed.data_json.decode(), content_digest(parsed.content), salt, digest
