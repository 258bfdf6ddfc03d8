"""Emptying events: the owner's one lawful change, payload and salt become NULL.

What is to be emptied is asked for first and then named by lists of values. Joined in one statement
PostgreSQL read the events of every week for each part of an erasure.
"""

from collections.abc import Sequence
from typing import Any

from django.db import connections

from workspaces.forgetting import Scope

EVENTS_AT_A_TIME = 5_000

# The trigger lets this through and nothing else; only the owner's role may UPDATE at all.
ERASING = "SET LOCAL amends.erasing = 'yes'"
OVER = "SET LOCAL amends.erasing = ''"
_TOLD = """
SELECT place, received_at, event_id, run, action, ARRAY(
    SELECT found[1] FROM regexp_matches(data::text, '"sha256:([0-9a-f]{64})"', 'g') AS found)
FROM ledger_event WHERE workspace_id = %(workspace)s AND data IS NOT NULL AND run = ANY(%(runs)s)"""
OF_RUNS = _TOLD
OF_ACTIONS = f"{_TOLD} AND action = ANY(%(actions)s)"
EMPTY_EVENTS = """
UPDATE ledger_event SET data = NULL, salt = NULL WHERE workspace_id = %(workspace)s
    AND place = ANY(%(places)s) AND received_at = ANY(%(moments)s)"""
EMPTY_KEYS = """
UPDATE ledger_eventkey SET content = ''
WHERE workspace_id = %(workspace)s AND event_id = ANY(%(events)s)"""
EMPTY_SNAPSHOTS = """
UPDATE ledger_blob SET content = NULL
WHERE workspace_id = %(workspace)s AND sha256 = ANY(%(snapshots)s)"""


def empty_events(scope: Scope, pairs: Sequence[tuple[str, str]], *, using: str) -> int:
    """Empty the events of the scope's runs, and those of single actions: (run, action).

    Their keys and the snapshots that they name go with them. Returns how many events were emptied.
    """
    emptied = 0
    with connections[using].cursor() as cursor:
        told = _told(cursor, scope, pairs)
        cursor.execute(ERASING)
        for start in range(0, len(told), EVENTS_AT_A_TIME):
            some = told[start : start + EVENTS_AT_A_TIME]
            emptied += _empty(cursor, scope.workspace.pk, some)
        cursor.execute(OVER)
    return emptied


def _told(cursor: Any, scope: Scope, pairs: Sequence[tuple[str, str]]) -> list[tuple[Any, ...]]:
    """Place, moment, id, run, action and snapshots of the events that still have a payload."""
    given: dict[str, Any] = {"workspace": scope.workspace.pk, "runs": list(scope.names)}
    cursor.execute(OF_RUNS, given)
    told: list[tuple[Any, ...]] = cursor.fetchall()
    wanted = {pair for pair in pairs if pair[0] not in set(scope.names)}
    if wanted:
        given["runs"] = sorted({run for run, _ in wanted})
        given["actions"] = sorted({action for _, action in wanted})
        cursor.execute(OF_ACTIONS, given)
        told += [row for row in cursor.fetchall() if row[3:5] in wanted]
    return told


def _empty(cursor: Any, workspace_id: int, told: Sequence[tuple[Any, ...]]) -> int:
    cursor.execute(
        EMPTY_EVENTS,
        {"workspace": workspace_id, "places": [row[0] for row in told],
         "moments": sorted({row[1] for row in told})},
    )  # fmt: skip
    emptied: int = cursor.rowcount
    events = [row[2] for row in told]
    cursor.execute(EMPTY_KEYS, {"workspace": workspace_id, "events": events})
    snapshots = sorted({one for row in told for one in row[5]})
    if snapshots:
        cursor.execute(EMPTY_SNAPSHOTS, {"workspace": workspace_id, "snapshots": snapshots})
    return emptied
