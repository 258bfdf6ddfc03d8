"""Documents of the Agent Approval Interchange Specification 1.0 (agent-approval-interchange, PyPI).

Out: an approval of ours as the document that asks, the one that a person decided, and the one that
says what became of it. In: a document that asks, checked as strictly as its schema has it. The
digest in a document is of the action as this document shows it; ours, which binds what runs, stands
beside it under the desk's own name.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from django.conf import settings
from django.http import Http404, HttpRequest
from django.shortcuts import get_object_or_404
from msgspec import UNSET, Meta, UnsetType
from ninja import Router

from amends.protocol.canonical import INTEGER_MAX, digest
from amends.protocol.masking import holds_mask
from approvals import call_context, notifications
from approvals.deciders import asking_rules
from approvals.gate import slow_path
from approvals.interchange import aap
from approvals.interchange import aap_requests as requests
from approvals.interchange.aap_requests import Conflict, RequestRecord, Submission, Unknown
from approvals.interchange.instances import stamp
from approvals.models import Approval, ApprovalState, Decision, SubjectKind
from edge.asgi import Handler, Receive, Scope, Send, answer, answering, refuse
from ledger import disclosure, timestamps
from ledger.agent_keys import actor_of
from ledger.parsed_events import Actor
from workspaces.clock import database_time
from workspaces.keys import ByPerson, caller_of, reader_of

VERSION = "1.0"
REASONS_MAX = 20
TEXT_CHARACTERS_MAX = 1_000
LABEL_CHARACTERS_MAX = 200

Id = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]*\Z")]
Text = Annotated[str, Meta(min_length=1, max_length=TEXT_CHARACTERS_MAX)]
Path = Annotated[str, Meta(min_length=1, max_length=4_096)]
Moment = Annotated[datetime, Meta(tz=True)]


class Origin(msgspec.Struct, forbid_unknown_fields=True):
    harness: Id
    session_id: Id
    run_id: Id | UnsetType = UNSET
    task_id: Id | UnsetType = UNSET
    graph_id: Id | UnsetType = UNSET
    node_id: Id | UnsetType = UNSET
    agent_id: Id | UnsetType = UNSET
    profile: Id | UnsetType = UNSET
    subagent_run_id: Id | UnsetType = UNSET
    parent_run_id: Id | UnsetType = UNSET
    project: Path | UnsetType = UNSET


class Presentation(msgspec.Struct, forbid_unknown_fields=True):
    redacted: bool | UnsetType = UNSET
    binding_hint: Text | UnsetType = UNSET
    details: Annotated[str, Meta(min_length=1, max_length=10_000)] | UnsetType = UNSET


class Action(msgspec.Struct, forbid_unknown_fields=True):
    kind: Id
    name: Id
    summary: Text
    arguments: dict[str, Any]
    resource: Path | UnsetType = UNSET
    working_directory: Path | UnsetType = UNSET
    effects: Annotated[list[Text], Meta(max_length=100)] | UnsetType = UNSET
    presentation: Presentation | UnsetType = UNSET


class RiskTold(msgspec.Struct, forbid_unknown_fields=True):
    level: Literal["low", "medium", "high", "critical"]
    reasons: Annotated[list[Text], Meta(min_length=1, max_length=REASONS_MAX)]


class Choice(msgspec.Struct, forbid_unknown_fields=True):
    decision: Literal["approve", "deny", "cancel"]
    scope: Literal["once", "session", "persistent"]
    label: Annotated[str, Meta(min_length=1, max_length=LABEL_CHARACTERS_MAX)]
    scope_constraints: dict[str, Any] | UnsetType = UNSET


class Request(msgspec.Struct, forbid_unknown_fields=True):
    id: Id
    created_at: Moment
    status: Literal["pending"]
    origin: Origin
    action: Action
    action_digest: Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
    risk: RiskTold
    choices: Annotated[list[Choice], Meta(min_length=1, max_length=10)]
    expires_at: Moment | UnsetType = UNSET
    extensions: dict[str, Any] | UnsetType = UNSET


class Envelope(msgspec.Struct, forbid_unknown_fields=True):
    aais: Literal["1.0"]
    type: Literal["approval.requested"]
    id: Id
    occurred_at: Moment
    sequence: Annotated[int, Meta(ge=0)]
    request: Request
    stream: Id | UnsetType = UNSET
    extensions: dict[str, Any] | UnsetType = UNSET


class ParsedRequest(NamedTuple):
    """A document that asks, checked; `raw` is its request as it came."""

    request: Request
    raw: dict[str, Any]


def parse(document: Any) -> ParsedRequest:
    """A document that asks; ValueError says what is wrong, also of one that says anything else."""
    kind = document.get("type") if isinstance(document, dict) else None
    if isinstance(kind, str) and kind in CLAIMS:
        raise ValueError(f"A document of the type {kind} {CLAIMS[kind]}")
    try:
        request = msgspec.convert(document, Envelope).request
    except msgspec.ValidationError as wrong:
        raise ValueError(f"It is no document that asks: {wrong}") from wrong
    raw = document["request"]
    offered = [(one.decision, one.scope) for one in request.choices]
    if len(offered) != len(set(offered)) or not {"deny", "cancel"} & {one for one, _ in offered}:
        raise ValueError("“choices” are not those of a document: each once, a no among them.")
    if any(_is_odd(one) for one in request.choices):
        raise ValueError("“choices” are not those of a document: a no is for once.")
    if ("approve", "once") not in offered:
        raise ValueError("A yes is for once here, and the document does not offer that.")
    shown = request.action.presentation
    if shown and shown.redacted is True and not shown.binding_hint:
        raise ValueError("“presentation” says redacted, and not what binds.")
    if shown and shown.redacted is True:
        raise ValueError("People here see what would run: send it as it is, the desk masks it.")
    if request.action_digest != digest(raw["action"]):
        raise ValueError("“action_digest” is not that of the action.")
    if request.expires_at and request.expires_at <= request.created_at:
        raise ValueError("“expires_at” is not later than “created_at”.")
    return ParsedRequest(request, raw)


CLAIMS = {
    "approval.decided": "decides nothing here: people decide, each on the card.",
    "approval.resolved": "decides nothing here: the desk itself says what became of a question.",
    "approval.snapshot": "is not taken: send each document that asks by itself.",
    "approval.activity": "is not taken: it asks nothing.",
}


def _is_odd(one: Choice) -> bool:
    if one.decision != "approve":
        return one.scope != "once"
    return one.scope != "once" and not one.scope_constraints


# Out: an approval of ours, for a reader who sees payloads or does not.

SEQUENCE = {"activity": 0, "requested": 1, "decided": 2, "resolved": 3}
OUTCOMES = {
    ApprovalState.USED: "approved",
    ApprovalState.REJECTED: "denied",
    ApprovalState.EXPIRED: "expired",
    ApprovalState.WITHDRAWN: "cancelled",
}
CHOICES = (
    {"decision": "approve", "scope": "once", "label": "Approve, once"},
    {"decision": "deny", "scope": "once", "label": "Reject"},
)
MASKED = "Masked values are known to the desk by their marks; its own digest binds them."
NOT_SHOWN = "Hidden: seeing them needs view_sensitive, or from the card approve or recover."
PARTS = ("connection", "operation", "target_type", "target_id", "args", "must_be_true")


def names(approval: Approval) -> list[str]:
    """Which documents there are of it by now, the newest last; none once it is erased."""
    if not approval.calls:
        return []
    ended = approval.state in OUTCOMES  # a yes that nobody has used may still be taken back
    decided = (ended or approval.state == ApprovalState.GRANTED) and _decision(approval)
    return ["requested", *(["decided"] if decided else []), *(["resolved"] if ended else [])]


def of(approval: Approval, name: str, *, sees: bool) -> dict[str, Any]:
    """One of its documents, for a reader who `sees` payloads or not; KeyError for any other."""
    if name not in names(approval):
        raise KeyError(name)
    request = _request(approval, sees=sees)
    content: dict[str, Any]
    if name == "requested":
        at, content = approval.asked_at, request
    else:
        bound = {"request_id": request["id"], "action_digest": request["action_digest"]}
        about = _decided if name == "decided" else _resolved
        at, content = about(approval, bound)
    part = {"requested": "request", "decided": "decision", "resolved": "resolution"}[name]
    found = envelope(name, f"{request['id']}:{name}", at, {part: content})
    return found if sees else disclosure.without_secrets(found)


def envelope(name: str, id_: str, at: datetime, content: Mapping[str, Any]) -> dict[str, Any]:
    return {"aais": VERSION, "type": f"approval.{name}", "id": id_, "occurred_at": stamp(at),
            "sequence": SEQUENCE[name], **content}  # fmt: skip


def _request(approval: Approval, *, sees: bool) -> dict[str, Any]:
    action = _action(approval, sees=sees)
    reasons = [str(rule.get("words", ""))[:TEXT_CHARACTERS_MAX] for rule in asking_rules(approval)]
    shown = [one for one in reasons if one][:REASONS_MAX] or ["People have to decide it."]
    about = approval.run_ref or approval.case_ref or str(approval.pk)
    origin = {"harness": "amends", "session_id": _named(about)}
    if approval.run_ref:
        origin["run_id"] = _named(approval.run_ref)
    if approval.agent:
        origin["agent_id"] = _named(approval.agent.name)
    after: dict[str, Any] = {}
    if approval.replaces_id is not None:  # somebody has changed what the agent asked for
        asked = approval.calls[0]["more"]["asked"]["args"]
        shown_args = _exact(disclosure.value(asked, sensitive=sees)) if sees else NOT_SHOWN
        replaced = _named(f"{approval.workspace.slug}:{approval.replaces_id}")
        after = {
            "replaces": replaced,
            "asked": shown_args,
            "changed_by": str(approval.requested_by),
        }
    return {
        "id": _named(f"{approval.workspace.slug}:{approval.pk}"),
        "created_at": stamp(approval.asked_at),
        "expires_at": stamp(approval.expires_at),
        "status": "pending",
        "origin": origin,
        "action": action,
        "action_digest": digest(action),
        "risk": {"level": approval.risk, "reasons": shown},
        "choices": [dict(one) for one in CHOICES],
        "extensions": {
            _extension(): {"digest": approval.digest, "card": notifications.url(approval)} | after
        },
    }


def _action(approval: Approval, *, sees: bool) -> dict[str, Any]:
    calls = [{name: call[name] for name in PARTS if call.get(name)} for call in approval.calls]
    is_plan = approval.subject_kind == SubjectKind.PLAN
    name = approval.case_ref or "plan" if is_plan else str(calls[0].get("operation", ""))
    arguments: Any = {"calls": calls} if is_plan else calls[0].get("args")
    if not isinstance(arguments, dict):
        arguments = {} if arguments is None else {"value": arguments}
    shown = disclosure.value(arguments, sensitive=sees)
    hidden = not isinstance(shown, dict)
    action: dict[str, Any] = {
        "kind": "amends.plan" if is_plan else "tool.call",
        "name": _named(name),
        "summary": approval.headline[:TEXT_CHARACTERS_MAX] or name or "a call",
        "arguments": {} if hidden else _exact(shown),
    }
    if about := ", ".join(approval.targets)[:4_096]:
        action["resource"] = about
    if hidden or holds_mask(shown):
        hint = NOT_SHOWN if hidden else MASKED
        action["presentation"] = {"redacted": True, "binding_hint": hint}
    return action if sees else disclosure.without_secrets(action)


def _decision(approval: Approval) -> Decision | None:
    """The answer with which it was decided: the no, or the yes that was the last one wanted."""
    if approval.state == ApprovalState.REJECTED:
        return approval.decisions.filter(granted=False).order_by("-pk").first()
    if approval.state in {ApprovalState.GRANTED, ApprovalState.USED}:
        return approval.decisions.filter(granted=True).order_by("-pk").first()
    return None


def _decided(approval: Approval, bound: Mapping[str, Any]) -> tuple[datetime, dict[str, Any]]:
    made = _decision(approval)
    if made is None:
        raise KeyError("decided")
    actor = {"id": f"person:{made.person_id}", "type": "human",
             "display_name": str(made.person)[:LABEL_CHARACTERS_MAX]}  # fmt: skip
    agreed = [str(one.person) for one in approval.decisions.filter(granted=True).order_by("pk")]
    return made.at, {
        "id": f"answer:{made.pk}", **bound, "decided_at": stamp(made.at),
        "decision": "approve" if made.granted else "deny", "scope": "once", "actor": actor,
        "extensions": {_extension(): {"digest": made.seen_digest, "agreed": agreed}},
    }  # fmt: skip


def _resolved(approval: Approval, bound: Mapping[str, Any]) -> tuple[datetime, dict[str, Any]]:
    outcome = OUTCOMES[ApprovalState(approval.state)]
    at = approval.decided_at or approval.expires_at
    content = resolution(str(bound["request_id"]), str(bound["action_digest"]), at, outcome,
                      call_context.ended(approval))  # fmt: skip
    if made := _decision(approval):
        content["decision_id"] = f"answer:{made.pk}"
    used = stamp(approval.used_at) if approval.used_at else None
    content["extensions"] = {_extension(): {"digest": approval.digest, "used_at": used}}
    return at, content


def resolution(
    request: str, action_digest: str, at: datetime, outcome: str, message: str
) -> dict[str, Any]:
    content = {
        "id": f"{request[:180]}:end", "request_id": request, "action_digest": action_digest,
        "resolved_at": stamp(at), "outcome": outcome, "message": message[:2_000] or outcome,
    }  # fmt: skip
    return content | ({"effective_scope": "once"} if outcome in {"approved", "denied"} else {})


def _extension() -> str:
    """Where what is ours stands in a document: the desk's own address."""
    return f"{settings.AMENDS_URL}/approval"


def _named(text: str) -> str:
    """The text as an id of the specification: what it does not allow is an underscore."""
    plain = re.sub(r"[^A-Za-z0-9._:-]", "_", text)[:190]
    return plain if plain[:1].isalnum() else f"id:{plain}"


def _exact(value: Any) -> Any:
    """Integers beyond a double's as text: RFC 8785, and so the specification, has none."""
    if isinstance(value, dict):
        return {name: _exact(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_exact(inner) for inner in value]
    is_wide = isinstance(value, int) and abs(value) > INTEGER_MAX
    return str(value) if is_wide else value


# From agents: a document that asks becomes a question.

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
    document = await aap.strict_body(scope, receive, actor)
    try:
        asked = parse(document)
    except ValueError as wrong:
        raise refuse("document", "The document is not taken", 422, str(wrong)[:500]) from wrong
    seen, is_new = await slow_path.run_in_thread(_create, actor, asked)
    await answer(send, 201 if is_new else 200, _told(seen))


def _create(actor: Actor, asked: ParsedRequest) -> tuple[RequestRecord, bool]:
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
    return requests.create(actor, f"{requests.DOCUMENTS}{request.id}", Submission(body, timeout))


async def read(scope: Scope, receive: Receive, send: Send) -> None:
    """`GET /aais/v1/requests/{id}?wait=25s`, by the document's own id."""
    actor, id_ = await _asked_of(scope)
    await answer(send, 200, _told(await aap.waited(scope, receive, actor, id_)))


async def cancel(scope: Scope, receive: Receive, send: Send) -> None:
    """`DELETE /aais/v1/requests/{id}`."""
    actor, id_ = await _asked_of(scope)
    await answer(send, 200, _told(await slow_path.run_in_thread(requests.cancel, actor, id_)))


async def consume(scope: Scope, receive: Receive, send: Send) -> None:
    """`POST /aais/v1/requests/{id}/consume`: the resolution, for one call."""
    actor, id_ = await _asked_of(scope)
    key = aap.idempotency_key(scope)
    await answer(send, 200, _told(await slow_path.run_in_thread(requests.consume, actor, id_, key)))


async def outcome(scope: Scope, receive: Receive, send: Send) -> None:
    """`POST /aais/v1/requests/{id}/outcome`: what became of the call."""
    actor, id_ = await _asked_of(scope)
    succeeded, note = await aap.reported_outcome(scope, receive, actor)
    seen = await slow_path.run_in_thread(aap.report, actor, id_, succeeded, note)
    await answer(send, 200, _told(seen))


async def _asked_of(scope: Scope) -> tuple[Actor, str]:
    actor = await actor_of(scope, "begin")
    return actor, requests.id_of(actor, f"{requests.DOCUMENTS}{scope['path_params']['id']}")


def _told(seen: RequestRecord) -> dict[str, Any]:
    """The document of how a request stands: `approved` only once it was taken."""
    request = seen.body["context"]
    id_, decided = str(request["id"]), seen.document.get("decision", {})
    is_open = seen.status == requests.PENDING
    if is_open or (seen.status == requests.APPROVED and "consumption" not in seen.document):
        at = timestamps.parse(seen.document["created_at"] if is_open else decided["decided_at"])
        stage, words = ("waiting", WAITS) if is_open else ("agreed", AGREED)
        content: dict[str, Any] = {"request_id": id_, "message": words, "stage": stage}
        return envelope("activity", f"{id_[:180]}:{stage}", at, {"activity": content})
    at = timestamps.parse(decided["decided_at"])
    words = decided.get("note") or f"It was {seen.status}."
    end = resolution(id_, request["action_digest"], at, seen.status, words)
    return envelope("resolved", f"{id_[:180]}:resolved", at, {"resolution": end})


router = Router(auth=ByPerson(), tags=["approvals"])


@router.get("/approvals/{int:pk}/documents", summary="The names of its documents, the newest last")
def list_documents(request: HttpRequest, pk: int) -> dict[str, Any]:
    return {"documents": names(_approval(request, pk))}


@router.get("/approvals/{int:pk}/documents/{name}", summary="One of them (AAIS 1.0)")
def read_document(request: HttpRequest, pk: int, name: str) -> dict[str, Any]:
    """`requested`, `decided` or `resolved`. Arguments are for whoever holds `view_sensitive`; each
    reveal is on the record.
    """
    approval = _approval(request, pk)
    caller = caller_of(request)
    if name not in names(approval):
        raise Http404("There is no such document of it by now.")
    person = caller.person
    sees = person is not None and disclosure.reveals(
        person, caller.workspace, approval=approval.pk, run=approval.run_ref
    )
    return of(approval, name, sees=sees)


def _approval(request: HttpRequest, pk: int) -> Approval:
    caller = reader_of(request)
    rows = Approval.objects.select_related("workspace", "agent", "closed_by")
    return get_object_or_404(rows, workspace=caller.workspace, pk=pk)
