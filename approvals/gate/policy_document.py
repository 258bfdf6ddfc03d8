"""`GET /api/v1/policy`: the active document, for the SDK's judgement while the desk is away.

With it goes the workspace's masking key, so that clients mask as the desk does: a secret, which no
cache keeps and only a key that may ask or ingest is given.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from approvals.gate import slow_path, slow_path_statements
from approvals.policy import active_policies, default
from edge import pools
from edge.asgi import Receive, Refused, Scope, Send, answer, header, refuse
from ledger.agent_keys import actor_of
from ledger.parsed_events import Actor
from workspaces.models import opened_masking_key

FORBIDDEN = 403
FORM = "v1"
"""Of placeholders. It stands in the ETag, so that who has an older answer fetches the key."""
DOCUMENT = """
SELECT w.masking_key, v.digest, v.document::text FROM workspaces_workspace w
LEFT JOIN approvals_policyversion v ON v.workspace_id = w.id AND v.active WHERE w.id = %s"""
NO_STORE = (b"cache-control", b"no-store")


class Masking(msgspec.Struct):
    form: str
    key: str


class PolicyInForce(msgspec.Struct):
    workspace: str
    agent: str
    digest: str
    masking: Masking
    document: Mapping[str, Any]


async def _whoever(scope: Scope) -> Actor:
    """Whoever may ask or ingest may know the policy: it says what to mask."""
    try:
        return await actor_of(scope, "begin")
    except Refused as refused:
        if refused.problem.status != FORBIDDEN:
            raise
        return await actor_of(scope, "ingest")


async def policy(scope: Scope, receive: Receive, send: Send) -> None:
    """The document with its digest, which is its ETag too; 304 where the agent has it."""
    actor = await _whoever(scope)
    async with pools.pool().connection() as connection:
        cursor = await connection.execute(DOCUMENT, [actor.workspace_id])
        row = await cursor.fetchone()
    if row is None:
        raise refuse("key", "The workspace is gone", 401)
    digest, document = default().digest, default().document
    if row[1] is not None:
        digest, document = row[1], msgspec.json.decode(row[2])
        if active_policies.known(digest) is None:
            await slow_path.run_in_thread(
                slow_path_statements.policy_in_force, actor.workspace_id, digest
            )
    tag = f'"{digest}.{FORM}"'
    if header(scope, b"if-none-match") == tag:
        await send(
            {
                "type": "http.response.start",
                "status": 304,
                "headers": [(b"etag", tag.encode()), NO_STORE],
            }
        )
        await send({"type": "http.response.body", "body": b""})
        return
    if "agentSafety" not in document:  # the short form, which agents need not know
        document = {"agentSafety": document}
    masking = Masking(FORM, opened_masking_key(bytes(row[0])).hex())
    found = PolicyInForce(actor.workspace, actor.name, digest, masking, document)
    await answer(send, 200, found, (("etag", tag),))
