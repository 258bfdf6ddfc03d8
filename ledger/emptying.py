"""Emptying events: the owner's one lawful change, payload and salt become NULL.

What is to be emptied is asked for first and then named by lists of values. Joined in one statement
PostgreSQL read the events of every week for each part of an erasure.

A run may have a hundred thousand events: whoever empties says how many at most, and comes again.
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
SELECT place, received_at, event_id, ARRAY(
    SELECT found[1] FROM regexp_matches(data::text, '"sha256:([0-9a-f]{64})"', 'g') AS found)
FROM ledger_event WHERE workspace_id = %(workspace)s AND data IS NOT NULL"""
OF_RUNS = f"{_TOLD} AND run = ANY(%(runs)s) LIMIT %(at_most)s"
# Each pair is looked up by itself (OFFSET 0 keeps it so): an action's id alone may stand in many.
OF_ACTIONS = f"""
SELECT told.* FROM unnest(%(runs)s::text[], %(actions)s::text[]) AS wanted(of_run, of_action)
CROSS JOIN LATERAL ({_TOLD} AND run = of_run AND action = of_action OFFSET 0) AS told
LIMIT %(at_most)s"""  # noqa: S608 - put together of constants
EMPTY_EVENTS = """
UPDATE ledger_event SET data = NULL, salt = NULL WHERE workspace_id = %(workspace)s
    AND place = ANY(%(places)s) AND received_at = ANY(%(moments)s)"""
EMPTY_KEYS = """
UPDATE ledger_eventkey SET content = ''
WHERE workspace_id = %(workspace)s AND event_id = ANY(%(events)s)"""
EMPTY_SNAPSHOTS = """
UPDATE ledger_blob SET content = NULL
WHERE workspace_id = %(workspace)s AND sha256 = ANY(%(snapshots)s)"""


def empty_events(
    scope: Scope, pairs: Sequence[tuple[str, str]], *, using: str, at_most: int
) -> int:
    """Empty the events of the scope's runs, and those of single actions: (run, action).

    Their keys and the snapshots that they name go with them. Returns how many events were emptied;
    where that is `at_most`, more may be left.
    """
    emptied = 0
    with connections[using].cursor() as cursor:
        told = _told(cursor, scope, pairs, at_most)
        cursor.execute(ERASING)
        for start in range(0, len(told), EVENTS_AT_A_TIME):
            some = told[start : start + EVENTS_AT_A_TIME]
            emptied += _empty(cursor, scope.workspace.pk, some)
        cursor.execute(OVER)
    return emptied


def _told(
    cursor: Any, scope: Scope, pairs: Sequence[tuple[str, str]], at_most: int
) -> list[tuple[Any, ...]]:
    """Place, moment, id and snapshots of events that still have a payload."""
    given: dict[str, Any] = {"workspace": scope.workspace.pk, "at_most": at_most}
    whole = set(scope.names)
    cursor.execute(OF_RUNS, given | {"runs": list(whole)})
    told: list[tuple[Any, ...]] = cursor.fetchall()
    wanted = sorted({pair for pair in pairs if pair[0] not in whole})
    if wanted and len(told) < at_most:
        runs, actions = (list(column) for column in zip(*wanted, strict=True))
        left = {"runs": runs, "actions": actions, "at_most": at_most - len(told)}
        cursor.execute(OF_ACTIONS, given | left)
        told += cursor.fetchall()
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
    snapshots = sorted({one for row in told for one in row[3]})
    if snapshots:
        cursor.execute(EMPTY_SNAPSHOTS, {"workspace": workspace_id, "snapshots": snapshots})
    return emptied
