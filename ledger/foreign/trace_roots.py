"""Roots of traces that came before any span of a call: what ends a run is kept until it has begun.

Whether a trace is a run at all, its root does not say, and most never become one. So what is kept
is little, and only for a day (ledger/retention.py). Whoever keeps a root looks afterwards whether
the run is there, and whoever told of a run looks afterwards whether a root waits: however two
exports cross, one of them finds both.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from amends.protocol.masking import Unfit
from amends.protocol.vocabulary import EventType
from edge import pools
from ledger.foreign.calls import ForeignRun, masked_member
from ledger.parsed_events import Actor

KEPT_MAX = 10_000
"""Of one agent; the oldest go first. As many as one export has spans."""
ERROR_LEFT_OUT = {"message": "The span has the status ERROR."}

KEEP = """
INSERT INTO ledger_traceroot (workspace_id, agent_id, run, span, began, ended, error)
VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (agent_id, run, span) DO NOTHING"""
LET_GO = """
DELETE FROM ledger_traceroot WHERE id IN (
    SELECT id FROM ledger_traceroot WHERE agent_id = %s ORDER BY id DESC OFFSET %s)"""
WAITING = """
SELECT t.id, t.run, t.span, t.began, t.ended, t.error::text FROM ledger_traceroot t
JOIN ledger_run r ON r.workspace_id = t.workspace_id AND r.run = t.run
WHERE t.agent_id = %s AND t.run = ANY(%s) ORDER BY t.id"""
TOLD = "DELETE FROM ledger_traceroot WHERE id = ANY(%s)"

_json = msgspec.json.Encoder()


def keep(actor: Actor, roots: Iterable[ForeignRun]) -> None:
    """Keep the roots that end a trace whose run is not here."""
    # In one order, so that two who bring the same do not wait for each other.
    rows = sorted((root.run, root.identity, root) for root in roots if root.end is not None)
    if not rows:
        return
    with pools.threads_pool().connection() as connection, connection.cursor() as cursor:
        cursor.executemany(KEEP, [_row(actor, root) for _, _, root in rows])
        cursor.execute(LET_GO, [actor.agent_id, KEPT_MAX])


def _row(actor: Actor, root: ForeignRun) -> list[Any]:
    error = (root.end[1] if root.end else {}).get("error")
    if error is not None:
        try:
            error = masked_member(error, "error", actor)
        except (Unfit, ValueError):
            error = ERROR_LEFT_OUT
    told = None if error is None else _json.encode(error).decode()
    return [actor.workspace_id, actor.agent_id, root.run, root.identity, root.began or "",
            root.ended or "", told]  # fmt: skip


def waiting(actor: Actor, runs: Iterable[str]) -> dict[int, ForeignRun]:
    """The roots that wait for one of these runs and find it here, by their row."""
    with pools.threads_pool().connection() as connection:
        rows = connection.execute(WAITING, [actor.agent_id, sorted(runs)]).fetchall()
    found = {}
    for pk, run, span, began, ended, error in rows:
        root = ForeignRun(run, f"span {span}", identity=span)
        root.trace = {"trace_id": run.removeprefix("trace_"), "span_id": span}
        root.began, root.ended = began or None, ended or None
        root.end = (EventType.RUN_COMPLETED, {})
        if error is not None:
            root.end = (EventType.RUN_FAILED, {"error": msgspec.json.decode(error)})
        found[pk] = root
    return found


def told(rows: Iterable[int]) -> None:
    """They wait no more."""
    with pools.threads_pool().connection() as connection:
        connection.execute(TOLD, [list(rows)])
