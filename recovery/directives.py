"""Directives over the hot door: `GET /api/v1/runs/{run}/directive?wait=30`.

An agent asks what the desk wants of its run: to stop, or to resume from a checkpoint with these
steps skipped and repeated. A waiter holds no database connection: between two looks it sleeps.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qs

from ledger.door import answer, answering, refuse, speaker_of
from ledger.said import Speaker
from workspaces import hot
from workspaces.hot import Receive, Scope, Send, route

WAIT_SECONDS_MAX = 60.0
LOOK_EVERY_SECONDS = 1.0
WAITERS_MAX = 2_000

STANDING = """
SELECT d.id, d.kind, c.name, coalesce(c.state, convert_from(b.content, 'UTF8')::jsonb),
    c.state_ref, c.instructions, d.steps, d.issued_at,
    d.acknowledge_by, r.held_by,
    (SELECT max(a.n) FROM ledger_action a WHERE a.run_id = r.id),
    (SELECT max(p.n) FROM ledger_checkpoint p WHERE p.run_id = r.id)
FROM ledger_run r
LEFT JOIN recovery_directive d
    ON d.run_id = r.id AND d.acknowledged_at IS NULL AND d.withdrawn_at IS NULL
LEFT JOIN ledger_checkpoint c ON c.id = d.checkpoint_id
LEFT JOIN ledger_blob b ON b.workspace_id = r.workspace_id AND c.state_ref = 'sha256:' || b.sha256
WHERE r.workspace_id = %s AND r.run = %s AND r.agent_id = %s"""


class Crowd:
    """How many wait in this process."""

    def __init__(self) -> None:
        self.count = 0


crowd = Crowd()


async def directive(scope: Scope, receive: Receive, send: Send) -> None:
    """What the desk wants of this run now; with `wait`, as soon as it wants something."""
    speaker = await speaker_of(scope, "begin")
    run = scope["path_params"]["run"]
    seconds = _seconds(scope)
    found = await _standing(run, speaker)
    if found is None and seconds:
        found = await _waited(run, speaker, seconds, receive)
    await answer(send, 200, {"directive": found})


async def _waited(
    run: str, speaker: Speaker, seconds: float, receive: Receive
) -> dict[str, Any] | None:
    if crowd.count >= WAITERS_MAX:
        raise refuse("overloaded", "Too many wait here, come back in a moment", 503)
    loop = asyncio.get_running_loop()
    end, went = loop.time() + seconds, asyncio.ensure_future(_gone(receive))
    crowd.count += 1
    try:
        while (left := end - loop.time()) > 0 and not went.done():
            await asyncio.wait({went}, timeout=min(left, LOOK_EVERY_SECONDS))
            found = await _standing(run, speaker)
            if found is not None:
                return found
    finally:
        crowd.count -= 1
        went.cancel()
    return None


async def _standing(run: str, speaker: Speaker) -> dict[str, Any] | None:
    """The standing directive; a run that is held without one is told to stop all the same."""
    async with hot.pool().connection() as connection:
        cursor = await connection.execute(STANDING, [speaker.workspace_id, run, speaker.agent_id])
        row = await cursor.fetchone()
    if row is None:  # not arrived yet, or another agent's, which looks the same
        return None
    id_, kind, name, state, state_ref, instructions, steps, issued, until, held, n, at = row
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
        "state": {"ref": state_ref} if state_ref and state is None else state,
        "instructions": instructions or "",
        "steps": steps,
        "n": max(n or 0, at or 0),
    }


def _seconds(scope: Scope) -> float:
    given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("wait", ["0"])[-1]
    try:
        return max(0.0, min(float(given), WAIT_SECONDS_MAX))
    except ValueError:
        raise refuse("schema", "“wait” is a number of seconds", 422) from None


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


routes = [route("GET", r"/api/v1/runs/(?P<run>.{1,120})/directive", answering(directive))]

documented: dict[str, Any] = {
    "/api/v1/runs/{run}/directive": {
        "get": {
            "summary": "What the desk wants of a run: nothing, to stop, or to resume",
            "tags": ["agents"],
            "parameters": [
                {"name": "run", "in": "path", "required": True, "schema": {"type": "string"}},
                {"name": "wait", "in": "query", "schema": {"type": "number", "maximum": 60}},
            ],
            "responses": {"200": {"description": "`directive`, or null"}},
        }
    }
}
