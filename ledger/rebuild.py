"""Folding everything anew: the projections are a function of the events, and this computes it.

Rows are changed in place, for cases and plans point at them. Leases, holds and what triage has seen
are not statements of events and stay.
"""

from collections import defaultdict
from collections.abc import Generator, Iterator
from typing import Any

from django.db import connection, transaction

from amends.protocol.vocabulary import EventType
from ledger import drivers
from ledger.append import projection_rows, statements
from ledger.append.projection import stored_event_of
from ledger.append.statements import LastWrites, Rows, Statement
from ledger.desk_events import plain_connection
from ledger.fold import checkpoint_of, fold_action, fold_run, moves_action, moves_run
from ledger.parsed_events import StoredEvent

RUNS_AT_A_TIME = 200

EVENTS_OF_RUNS = """
SELECT run, action, event_id, type, n, data::text, place, received_at, actor_kind <> 'agent', actor,
    trusted, trace::text
FROM ledger_event WHERE workspace_id = %b AND run = ANY(%b::text[])"""

MISSING_RUNS = """
INSERT INTO ledger_run (workspace_id, run, agent_id, model, request, goal, customer, customer_name,
    labels, state, summary, failed_action, cancelled_by, reason, resumed_from, flags, revision,
    seen_revision, search_revision, held_by, action_count, effect_count)
SELECT %b, e.run, min(a.id), '', '', '', '', '', '{}', 'running', '', '', '', '', '', '{}', 0, 0,
    0, '', 0, 0
FROM ledger_event e
LEFT JOIN workspaces_agent a
    ON e.actor_kind = 'agent' AND a.workspace_id = e.workspace_id AND a.name = e.actor
WHERE e.workspace_id = %b AND e.run <> ''
    AND (e.type LIKE 'run.%%' OR e.type LIKE 'action.%%' OR e.type LIKE 'plan.%%'
         OR e.type LIKE 'step.%%')
GROUP BY e.run ON CONFLICT (workspace_id, run) DO NOTHING"""

SUMS = """
UPDATE ledger_run r SET first_place = u.first_place, last_place = u.last_place,
    started_at = u.started_at::timestamptz, last_event_at = u.last_at::timestamptz,
    action_count = (SELECT count(*) FROM ledger_action a WHERE a.run_id = r.id),
    effect_count = (SELECT count(*) FROM ledger_effect f JOIN ledger_action a ON a.id = f.action_id
        WHERE a.run_id = r.id AND NOT f.withdrawn)
FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::text[], %b::text[])
AS u (id, first_place, last_place, started_at, last_at)
WHERE r.id = u.id"""


def rebuild(workspace_id: int) -> Iterator[int]:
    """Fold all runs of a workspace anew, some at a time; yields how many were done."""
    with connection.cursor() as cursor:
        cursor.execute(MISSING_RUNS.replace("%b", "%s"), [workspace_id, workspace_id])
    after = ""
    while names := _next_names(workspace_id, after):
        with transaction.atomic():
            drivers.run(_fold_runs(workspace_id, names), plain_connection())
        after = names[-1]
        yield len(names)


def _next_names(workspace_id: int, after: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT run FROM ledger_run WHERE workspace_id = %s AND run > %s"
            " AND forgotten_at IS NULL ORDER BY run LIMIT %s",
            [workspace_id, after, RUNS_AT_A_TIME],
        )
        return [name for (name,) in cursor.fetchall()]


def _fold_runs(workspace_id: int, names: list[str]) -> Generator[list[Statement], list[Rows], None]:
    locked, events = yield [
        (statements.LOCK_RUNS, [names, workspace_id]),
        (EVENTS_OF_RUNS, [workspace_id, names]),
    ]
    ids = {name: id_ for id_, name, *_ in locked}
    of_action: dict[tuple[str, str], list[StoredEvent]] = defaultdict(list)
    of_run: dict[str, list[StoredEvent]] = defaultdict(list)
    moved: dict[str, list[StoredEvent]] = defaultdict(list)
    # What was erased cannot be folded anew: the rows of such an action stand as they are.
    erased = {(run, action) for run, action, _, _, _, data, *_ in events if action and data is None}
    for run, action, *rest in events:
        stored = stored_event_of(*rest)
        if action and moves_action(stored.type) and (run, action) not in erased:
            of_action[run, action].append(stored)
        if moves_run(stored.type):
            of_run[run].append(stored)
        if moves_run(stored.type) or moves_action(stored.type):
            moved[run].append(stored)
    known, fresh = yield [
        (statements.KNOWN_ACTIONS, [[ids[r] for r, _ in of_action], [a for _, a in of_action]]),
        (statements.ACTION_IDS, [len(of_action)]),
    ]
    had = {(run_id, action): (id_, count) for run_id, action, id_, count in known}
    spare = iter(fresh[0][0] or ())
    agents = {name: agent for _, name, agent, *_ in locked}
    actions = []
    for (run, action), found in of_action.items():
        id_, effects = had.get((ids[run], action)) or (next(spare), None)
        row = fold_action(action, found)
        actions.append(projection_rows.Folded(id_, ids[run], agents[run], effects, row))
    checkpoints = [
        (ids[run], checkpoint_of(stored))
        for run, found in of_run.items()
        for stored in found
        if stored.type == EventType.RUN_CHECKPOINT
    ]
    yield LastWrites(
        [
            *projection_rows.write_actions(workspace_id, actions),
            *projection_rows.write_runs(
                [(ids[run], fold_run(found)) for run, found in of_run.items()]
            ),
            *projection_rows.write_checkpoints(checkpoints),
            (SUMS, _sums(ids, moved)),
        ]
    )


def _sums(ids: dict[str, int], moved: dict[str, list[StoredEvent]]) -> list[list[Any]]:
    return [
        [ids[run] for run in moved],
        [min(stored.sequence for stored in found) for found in moved.values()],
        [max(stored.sequence for stored in found) for found in moved.values()],
        [min(stored.received for stored in found).isoformat() for found in moved.values()],
        [max(stored.received for stored in found).isoformat() for found in moved.values()],
    ]
