"""Documents of agent-approval-interchange from agents: a document that asks becomes a question.

The specification has no transport and no way to use a yes, so a request here is one of
`aap_requests`, with its gate, its people and its single use. That it was approved is said to
whoever takes it (`consume`), once; a document that claims a decision decides nothing.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from approvals.gate import slow_path
from approvals.interchange import aais_documents as documents
from approvals.interchange import aap
from approvals.interchange import aap_requests as requests
from approvals.interchange.aap_requests import Conflict, Seen, Submission, Unknown
from edge.asgi import Handler, Receive, Scope, Send, answer, answering, refuse
from ledger import clocks
from ledger.agent_keys import actor_of
from ledger.parsed_events import Actor
from workspaces.clock import database_time

KEY = "aais:"
WAITS = "People are asked; nothing runs before they agree."
AGREED = "It may be made: take it with consume, once. Until then nothing is approved."
CONFLICTS = {
    "idempotency_conflict": "There is another request of this id: a new question has a new id.",
    "already_consumed": "It was taken already, and is good for one call.",
    "not_approved": "It is not approved, or no longer.",
    "approval_expired": "It was approved, and not taken in time.",
    "not_consumed": "Nothing was begun of which something could be told.",
    "outcome_conflict": "It was told otherwise.",
    "already_terminal": "It was decided before it was taken back.",
}


def in_problems(handler: Callable[[Scope, Receive, Send], Awaitable[None]]) -> Handler:
    """The handler with what does not stand so as a problem (RFC 9457)."""

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await handler(scope, receive, send)
        except Conflict as conflict:
            words = CONFLICTS[conflict.code]
            raise refuse(conflict.code.replace("_", "-"), words, 409) from conflict
        except Unknown as unknown:
            words = "There is no such request of this agent, or no longer"
            raise refuse("not-found", words, 404) from unknown

    return answering(answered)


async def take_in(scope: Scope, receive: Receive, send: Send) -> None:
    """`POST /aais/v1/documents`: 201, or 200 where it was here before."""
    actor = await actor_of(scope, "begin")
    document = await aap.strict_body(scope, receive)
    try:
        asked = documents.parse(document)
    except ValueError as wrong:
        raise refuse("document", "The document is not taken", 422, str(wrong)[:500]) from wrong
    seen, is_new = await slow_path.call(_create, actor, asked)
    await answer(send, 201 if is_new else 200, _told(seen))


def _create(actor: Actor, asked: documents.Asked) -> tuple[Seen, bool]:
    request, timeout = asked.request, requests.TIMEOUT_MAX
    if request.expires_at:
        timeout = min(timeout, request.expires_at - database_time())
        if timeout <= timedelta():
            raise refuse("document", "The document is not taken", 422, "Its time is over.")
    action, risk = request.action, request.risk
    reasons = "; ".join(risk.reasons)
    body: dict[str, Any] = {
        "tool": action.name, "arguments": action.arguments, "context": asked.raw,
        "agent_reasoning": f"{action.summary}\nIt calls the risk {risk.level}: {reasons}",
    }  # fmt: skip
    about = {"resource": action.resource, "working_directory": action.working_directory}
    if targets := [{"type": name, "id": value} for name, value in about.items() if value]:
        body["targets"] = targets
    return requests.create(actor, f"{KEY}{request.id}", Submission(body, timeout))


async def read(scope: Scope, receive: Receive, send: Send) -> None:
    """`GET /aais/v1/requests/{id}?wait=25s`, by the document's own id."""
    actor, id_ = await _asked_of(scope)
    await answer(send, 200, _told(await aap.waited(scope, receive, actor, id_)))


async def cancel(scope: Scope, receive: Receive, send: Send) -> None:
    """`DELETE /aais/v1/requests/{id}`."""
    actor, id_ = await _asked_of(scope)
    await answer(send, 200, _told(await slow_path.call(requests.cancel, actor, id_)))


async def consume(scope: Scope, receive: Receive, send: Send) -> None:
    """`POST /aais/v1/requests/{id}/consume`: the resolution, for one call."""
    actor, id_ = await _asked_of(scope)
    key = aap.idempotency_key(scope)
    await answer(send, 200, _told(await slow_path.call(requests.consume, actor, id_, key)))


async def outcome(scope: Scope, receive: Receive, send: Send) -> None:
    """`POST /aais/v1/requests/{id}/outcome`: what became of the call."""
    actor, id_ = await _asked_of(scope)
    succeeded, note = await aap.told(scope, receive)
    seen = await slow_path.call(aap.report, actor, id_, succeeded, note)
    await answer(send, 200, _told(seen))


async def _asked_of(scope: Scope) -> tuple[Actor, str]:
    actor = await actor_of(scope, "begin")
    return actor, requests.id_of(actor, f"{KEY}{scope['path_params']['id']}")


def _told(seen: Seen) -> dict[str, Any]:
    """The document of how a request stands: `approved` only once it was taken."""
    request = seen.body["context"]
    id_, decided = str(request["id"]), seen.document.get("decision", {})
    is_open = seen.status == requests.PENDING
    if is_open or (seen.status == requests.APPROVED and "consumption" not in seen.document):
        at = clocks.read(seen.document["created_at"] if is_open else decided["decided_at"])
        stage, words = ("waiting", WAITS) if is_open else ("agreed", AGREED)
        told: dict[str, Any] = {"request_id": id_, "message": words, "stage": stage}
        return documents.envelope("activity", f"{id_[:180]}:{stage}", at, {"activity": told})
    at = clocks.read(decided["decided_at"])
    words = decided.get("note") or f"It was {seen.status}."
    end = documents.resolution(id_, request["action_digest"], at, seen.status, words)
    return documents.envelope("resolved", f"{id_[:180]}:resolved", at, {"resolution": end})
