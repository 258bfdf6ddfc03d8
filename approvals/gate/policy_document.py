"""`GET /api/v1/policy`: the active document, for the SDK's judgement while the desk is away."""

import msgspec

from approvals.policy import default
from ledger.door import Refused, answer, header, speaker_of
from ledger.said import Speaker
from workspaces import hot
from workspaces.hot import Receive, Scope, Send

FORBIDDEN = 403
DOCUMENT = """
SELECT digest, document::text FROM approvals_policyversion WHERE workspace_id = %s AND active"""


async def _whoever(scope: Scope) -> Speaker:
    """Whoever may ask or ingest may know the policy: it says what to mask."""
    try:
        return await speaker_of(scope, "begin")
    except Refused as refused:
        if refused.problem.status != FORBIDDEN:
            raise
        return await speaker_of(scope, "ingest")


async def policy(scope: Scope, receive: Receive, send: Send) -> None:
    """The document with its digest, which is its ETag too; 304 where the agent has it."""
    speaker = await _whoever(scope)
    async with hot.pool().connection() as connection:
        cursor = await connection.execute(DOCUMENT, [speaker.workspace_id])
        row = await cursor.fetchone()
    digest, document = (
        (row[0], msgspec.json.decode(row[1])) if row else (default().digest, default().document)
    )
    tag = f'"{digest}"'
    headers = (("etag", tag),)
    if header(scope, b"if-none-match") == tag:
        await send(
            {"type": "http.response.start", "status": 304, "headers": [(b"etag", tag.encode())]}
        )
        await send({"type": "http.response.body", "body": b""})
        return
    if "agentSafety" not in document:  # the short form, which agents need not know
        document = {"agentSafety": document}
    told = {"workspace": speaker.workspace, "agent": speaker.name, "digest": digest}
    await answer(send, 200, told | {"document": document}, headers)
