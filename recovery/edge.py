"""What of recovery is answered in front of Django: directives, and whether a queue has news.

`GET /api/v1/runs/{run}/directive?wait=30`.

An agent asks what the desk wants of its run: to stop, since it is recovered or paused, or to resume
from a checkpoint with these steps skipped and repeated. A waiter holds a future and no database
connection, like those who wait for an approval; only for a run that is not known here yet it looks
again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from approvals.gate.decision_table import paused_by
from approvals.gate.waiting import Waiters, gone
from approvals.signals import DIRECTIVES
from edge import pools
from edge.asgi import (
    WAIT,
    Operation,
    Receive,
    Scope,
    Send,
    answer,
    answering,
    route,
    wait_seconds,
)
from ledger.agent_keys import actor_of
from ledger.fold.runs import BY_A_RESTORE
from workspaces.news import route_of_news

LOOK_FOR_RUN_SECONDS = 2.0

# The pause, if there is one, for which `begin` is denied to every call of the run `r` of agent `g`.
PAUSED = """
SELECT min(p.id) FROM approvals_pause p
WHERE p.workspace_id = r.workspace_id AND p.lifted_at IS NULL AND (p.kind = 'workspace'
    OR (p.kind = 'agent' AND p.name = g.name) OR (p.kind = 'run' AND p.name = r.run))"""

# Of several runs at once, each for the agent that asks and of its workspace alone. OFFSET 0 has
# each looked up by its own keys, however few rows there were when PostgreSQL planned this.
STANDING = f"""
SELECT asks.*, told.*
FROM unnest(%s::text[], %s::bigint[], %s::bigint[]) AS asks (run, workspace, agent)
CROSS JOIN LATERAL (
    SELECT r.id, d.id, d.kind, c.name, c.state, c.state_ref, c.instructions, d.steps,
        d.issued_at, d.acknowledge_by, r.held_by,
        (SELECT max(a.n) FROM ledger_action a WHERE a.run_id = r.id),
        (SELECT max(p.n) FROM ledger_checkpoint p WHERE p.run_id = r.id),
        (SELECT json_build_array(p.kind, p.name, p.reason,
                coalesce(nullif(u.name, ''), u.email, 'the desk itself'))
            FROM approvals_pause p LEFT JOIN workspaces_user u ON u.id = p.paused_by_id
            WHERE p.id = ({PAUSED}))
    FROM ledger_run r
    JOIN workspaces_agent g ON g.id = r.agent_id
    LEFT JOIN recovery_directive d
        ON d.run_id = r.id AND d.acknowledged_at IS NULL AND d.withdrawn_at IS NULL
    LEFT JOIN ledger_checkpoint c ON c.id = d.checkpoint_id
    WHERE r.workspace_id = asks.workspace AND r.run = asks.run AND r.agent_id = asks.agent
    OFFSET 0) told"""  # noqa: S608

STATE = "SELECT content FROM ledger_blob WHERE workspace_id = %s AND sha256 = %s"

NOW_WANTED = f"""
SELECT r.id FROM ledger_run r JOIN workspaces_agent g ON g.id = r.agent_id
WHERE r.id = ANY(%s) AND ((r.held_by <> '' AND NOT starts_with(r.held_by, '{BY_A_RESTORE}'))
    OR ({PAUSED}) IS NOT NULL OR EXISTS (
    SELECT FROM recovery_directive d
    WHERE d.run_id = r.id AND d.acknowledged_at IS NULL AND d.withdrawn_at IS NULL))"""  # noqa: S608

waiters = Waiters(DIRECTIVES, NOW_WANTED)


async def closing() -> None:
    await waiters.stop()


async def directive(scope: Scope, receive: Receive, send: Send) -> None:
    """What the desk wants of this run now; with `wait`, as soon as it wants something."""
    caller = await actor_of(scope, "begin")
    asker = Asker(scope["path_params"]["run"], caller.workspace_id, caller.agent_id)
    seconds = wait_seconds(scope)
    found = _wanted(await _runs.ask(asker))
    if found is None and seconds:
        found = await _waited(asker, seconds, receive)
    if found is not None and isinstance(ref := found.get("state"), Ref):
        found["state"] = await _state_of(ref, caller.workspace_id)
    await answer(send, 200, {"directive": found})


async def _waited(asker: Asker, seconds: float, receive: Receive) -> dict[str, Any] | None:
    loop = asyncio.get_running_loop()
    end, went = loop.time() + seconds, asyncio.ensure_future(gone(receive))
    try:
        row = await _runs.ask(asker)
        while row is None and (left := waiters.left(end)) > 0 and not went.done():
            await asyncio.wait({went}, timeout=min(left, LOOK_FOR_RUN_SECONDS))
            row = await _runs.ask(asker)
        while row is not None and not went.done():
            with waiters.registered(row[0]) as wanted:
                found = _wanted(await _runs.ask(asker))
                left = waiters.left(end)
                if found is not None or left <= 0:
                    return found
                both = {wanted, went}
                await asyncio.wait(both, timeout=left, return_when=asyncio.FIRST_COMPLETED)
    finally:
        went.cancel()
    return None


class Ref(str):
    """Names the blob that a state is kept as."""

    __slots__ = ()


async def _state_of(ref: Ref, workspace: int) -> Any:
    """What the blob holds, up to 8 MiB: it is read for whoever resumes, and not with all who ask;
    digit by digit as it was written, since nobody here looks at it. Its reference where it is not
    here, or is no JSON.
    """
    async with pools.AutocommitConnection() as connection:
        found = await connection.execute(STATE, [workspace, ref.removeprefix("sha256:")])
        row = await found.fetchone()
    content: bytes = row[0] if row and row[0] else b""
    try:
        content.decode()  # msgspec does not look at texts that it passes over
        return msgspec.json.decode(content, type=msgspec.Raw)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return {"ref": str(ref)}


class Asker(NamedTuple):
    """Which run, and who asks of it."""

    run: str
    workspace: int
    agent: int | None


async def _look_up(asked: list[Asker]) -> dict[Asker, tuple[Any, ...]]:
    columns = [list(column) for column in zip(*asked, strict=True)]
    async with pools.AutocommitConnection() as connection:
        rows = await (await connection.execute(STANDING, columns)).fetchall()
    return {Asker(*row[:3]): row[3:] for row in rows}


_runs = pools.Together(_look_up)


def _wanted(row: Sequence[Any] | None) -> dict[str, Any] | None:
    """The standing directive; a run that is held or paused is told to stop, come what may."""
    if row is None:  # not arrived yet, or another agent's, which looks the same
        return None
    _, id_, kind, name, state, state_ref, words, steps, issued, until, held, n, at, pause = row
    # Whom a restore holds nobody recovers: it goes on, and `begin` says which calls are in doubt.
    held = "" if held.startswith(BY_A_RESTORE) else held
    if pause is not None:
        return {"id": "", "kind": "stop", "reason": paused_by(*pause)}
    if id_ is None:
        return {"id": "", "kind": "stop", "reason": f"under recovery ({held})"} if held else None
    found = {
        "id": str(id_),
        "kind": kind,
        "issued_at": issued.isoformat(),
        "acknowledge_by": until.isoformat() if until else None,
    }
    if kind == "stop":
        return found | {"reason": f"the desk recovers this run ({held})" if held else ""}
    return found | {
        "from": name,
        "state": Ref(state_ref) if state_ref and state is None else state,
        "instructions": words or "",
        "steps": steps,
        "n": max(n or 0, at or 0),
    }


# A queue has news where a case was opened, closed or reopened since.
NEWS = """
    EXISTS (SELECT FROM recovery_case c WHERE c.workspace_id = w.id
        AND c.opened_at > asked.heard AND NOT c.without_effects)
    OR EXISTS (SELECT FROM recovery_case c WHERE c.workspace_id = w.id
        AND c.closed_at > asked.heard AND NOT c.without_effects)
    OR EXISTS (SELECT FROM recovery_case c WHERE c.workspace_id = w.id
        AND c.reopened_at > asked.heard AND NOT c.without_effects)
"""

routes = [
    route(
        "GET",
        r"/api/v1/runs/(?P<run>.{1,120})/directive",
        answering(directive),
        Operation(
            "directive",
            "What the desk wants of a run: nothing, to stop, or to resume",
            answer=dict[str, Any],
            query={"wait": WAIT},
            answers={200: "`directive`, or null"},
        ),
    ),
    route_of_news(r"/w/(?P<workspace>[-a-zA-Z0-9_]{1,80})/queue/fresh/", NEWS),
]
