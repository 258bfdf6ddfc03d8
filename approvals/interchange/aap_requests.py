"""Requests of the Agent Approval Protocol as calls at our gate: what is kept of each; its moves.

A request is one call of one run of its own, under a key made of the client's; so policy, pauses,
digest, inbox and single use are those of every call, and only people decide. The protocol wants
its arguments back as they came, unmasked. The ledger never has them so: they lie sealed, apart, and
are thrown away a day after the run has ended. What time does to a request is in aap.py.

All functions run in a thread of the gate.
"""

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from django.db import transaction

from amends.protocol.masking import masked
from amends.protocol.vocabulary import EventType
from approvals import approval_requests, grants
from approvals.deciders import locked
from approvals.gate import slow_path
from approvals.gate.begin_request import ASKED_APART, BODY_BYTES_MAX, BeginRequest, parse
from approvals.gate.decision_table import ApprovalRequired, Denied, Proceed, TryUnderWay
from approvals.gate.slow_path_statements import Decided
from approvals.interchange import instances
from approvals.interchange.instances import stamp
from approvals.models import LIVING, Approval, ApprovalState
from edge.asgi import Problem, Refused, refuse
from ledger import timestamps, wire
from ledger.canonical import canonical
from ledger.models import Action, ActionState, Run, RunState
from ledger.parsed_events import Actor, ParsedEvent, new_id
from workspaces import encryption, locks
from workspaces.clock import database_time
from workspaces.models import Secret

RUN = ASKED_APART
ACTION = "call"
SEALED = "aap "
DOCUMENTS = "aais:"
"""What the keys of documents begin with, which are kept beside these requests: a request under such
a key would be taken for a document, and its yes for one to bytes that nobody saw."""
NAMES_APART = uuid.UUID("b29a43a7-1949-4b9f-9d61-b7ae66f85d31")
"""Of ids that are made of workspace, agent and the client's key (RFC 9562, version 5)."""
ALLOWED_SECONDS = 300
"""For how long what a rule allows may be begun before it is judged anew."""
TIMEOUT_MAX = timedelta(days=7)
NOTE_CHARACTERS_MAX = 2_000
TIME_OVER = "the time that the agent gave it is over"

# JSON in ASCII has at most three bytes for one of a body, and ours says a little more.
SEALED_BYTES_MAX = 4 * BODY_BYTES_MAX

PENDING, APPROVED, DENIED = "pending", "approved", "denied"
EXPIRED, CANCELLED = "expired", "cancelled"
STATES = {
    ApprovalState.WAITING: PENDING,
    ApprovalState.GRANTED: APPROVED,
    ApprovalState.USED: APPROVED,
    ApprovalState.REJECTED: DENIED,
    ApprovalState.EXPIRED: EXPIRED,
    ApprovalState.WITHDRAWN: CANCELLED,
}


class Submission(NamedTuple):
    """What a client asks, checked: the body as it came, and what of it makes the call."""

    body: dict[str, Any]
    timeout: timedelta

    @property
    def tool(self) -> str:
        """Two servers may have a tool of one name, and the policy must tell them apart."""
        server = self.body.get("server")
        return f"{server}.{self.body['tool']}" if server else str(self.body["tool"])


class Conflict(Exception):
    """We stopped because the request does not stand so; `code` is the protocol's word."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Unknown(Exception):
    """We stopped because there is no such request of this agent, or no longer."""


@dataclass(frozen=True)
class SealedRequest:
    """A request as it lies sealed. `settled` is what was said of it at once: by a rule, or by what
    is stopped."""

    id: str
    actor: Actor
    body: dict[str, Any]
    created: datetime
    deadline: datetime
    settled: dict[str, Any] | None = None

    @property
    def run(self) -> str:
        return f"{RUN}{self.id}"

    def ask(self, attempt: str) -> BeginRequest:
        submission = Submission(self.body, timedelta())
        reason = self.body.get("agent_reasoning")
        event = {
            "run": self.run, "action": ACTION, "n": 1, "attempt": attempt,
            "data": {
                "tool": submission.tool, "args": self.body["arguments"], "key": f"aap:{self.id}",
                **({"intent": {"reason": reason}} if reason else {}),
                **({"targets": self.body["targets"]} if "targets" in self.body else {}),
            },
        }  # fmt: skip
        asked = parse(msgspec.json.encode(event), self.actor, explain=False)
        return replace(asked, may_draw=False)  # it is begun when it is consumed, and not before


class RequestRecord(NamedTuple):
    """A request with all that is known of it: the document, its approval and its call."""

    document: dict[str, Any]
    status: str
    approval: int | None
    action: Action | None
    body: dict[str, Any]


def id_of(actor: Actor, key: str) -> str:
    return str(uuid.uuid5(NAMES_APART, f"{actor.workspace_id}/{actor.agent_id}/{key}"))


def create(actor: Actor, key: str, submission: Submission) -> tuple[RequestRecord, bool]:
    """Put a request to policy and people; the same one again is given back. Whether it is new."""
    id_ = id_of(actor, key)
    now = database_time()
    sealed = SealedRequest(id_, actor, submission.body, now, now + submission.timeout)
    ask = sealed.ask("aap")
    with transaction.atomic():
        found = slow_path.decided(ask)
        known = _found(actor, id_)
        if known is not None:
            if not _are_same(known.body, submission.body):
                raise Conflict("idempotency_conflict")
            return seen(known), False
        sealed = _decided(sealed, ask, found)
        value = {"body": sealed.body, "created": sealed.created.isoformat(),
                 "deadline": sealed.deadline.isoformat(), "settled": sealed.settled,
                 "agent": actor.agent_id}  # fmt: skip
        Secret.objects.create(
            workspace_id=actor.workspace_id, name=f"{SEALED}{id_}",
            sealed=encryption.seal(json.dumps(value), bytes_max=SEALED_BYTES_MAX),
        )  # fmt: skip
        if sealed.settled is not None and actor.agent_id is not None:
            instances.tell(actor.agent_id, id_, sealed.created)
    return seen(sealed), True


def _are_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """As JSON: in Python 1 and true are equal."""
    return canonical(one) == canonical(other)


def _decided(sealed: SealedRequest, ask: BeginRequest, found: Decided) -> SealedRequest:
    """The request as the gate answers it: allowed by rule, denied, or put to people."""
    answer: dict[str, Any]
    if isinstance(found.decision, Proceed):
        # It is not begun: whoever may begin it comes to consume it, and is judged anew.
        until = sealed.created + timedelta(seconds=ALLOWED_SECONDS)
        answer = {"status": APPROVED, "note": found.judgement.why, "expires_at": until.isoformat()}
        return _replaced(sealed, settled=answer)
    if not isinstance(found.decision, ApprovalRequired | Denied):
        raise Conflict("idempotency_conflict")
    reply = slow_path.carry_out(ask, found).body
    if isinstance(reply, Problem):
        raise Refused(reply)
    if reply["answer"] == "denied" and reply["code"] == slow_path.NO_ROOM:
        # Nobody has said no, and nothing is kept: the same key asks once there is room.
        raise refuse(slow_path.NO_ROOM, "Nobody was asked:", 429, reply["reason"])
    if reply["answer"] == "denied":
        return _replaced(sealed, settled={"status": DENIED, "note": reply["reason"]})
    until = datetime.fromisoformat(reply["expires_at"])
    return _replaced(sealed, deadline=min(sealed.deadline, until))


def _replaced(sealed: SealedRequest, **changes: Any) -> SealedRequest:
    return SealedRequest(**(vars(sealed) | changes))


def _found(actor: Actor, id_: str) -> SealedRequest | None:
    secrets = Secret.objects.filter(workspace=actor.workspace_id, name=f"{SEALED}{id_}")
    secret = secrets.first()
    value = secret.open() if secret else None
    if value is None or value["agent"] != actor.agent_id:
        return None
    created, deadline = (datetime.fromisoformat(value[name]) for name in ("created", "deadline"))
    return SealedRequest(id_, actor, value["body"], created, deadline, value["settled"])


def _known(actor: Actor, id_: str) -> SealedRequest:
    sealed = _found(actor, id_)
    if sealed is None:
        raise Unknown
    return sealed


def read(actor: Actor, id_: str) -> RequestRecord:
    """The request as it stands. One whose time is over is taken back from people."""
    sealed = _known(actor, id_)
    found = seen(sealed)
    if found.status == PENDING and database_time() >= sealed.deadline:
        if approval := _approval(sealed):
            take_back(approval, TIME_OVER)
        found = seen(sealed)
    if found.status in {DENIED, EXPIRED, CANCELLED} and found.action is not None:
        _end(sealed, EventType.RUN_CANCELLED, {"reason": f"the request was {found.status}"})
    return found


def cancel(actor: Actor, id_: str) -> RequestRecord:
    """The agent takes its request back; possible as long as nobody has decided."""
    sealed = _known(actor, id_)
    if seen(sealed).status == PENDING and (approval := _approval(sealed)):
        take_back(approval, "the agent took it back")
    found = read(actor, id_)
    if found.status != CANCELLED:  # decided before, or while we came
        raise Conflict("already_terminal")
    return found


@transaction.atomic
def take_back(approval: Approval, why: str) -> None:
    """Take the question back from people, if it waits for them or for its moment."""
    row = locked(approval)
    is_waiting = row.state == ApprovalState.WAITING
    if is_waiting or grants.is_early(row, database_time()):
        approval_requests.void(row, why=why)


def consume(actor: Actor, id_: str, key: str) -> RequestRecord:
    """Begin the call: once, and only while all that it rests on still holds."""
    sealed = _known(actor, id_)
    attempt = f"aap_{hashlib.sha256(key.encode()).hexdigest()[:40]}"
    found = seen(sealed)
    action = found.action
    if found.document.get("consumption"):
        if action is not None and action.attempts.filter(attempt=attempt).exists():
            return found
        raise Conflict("already_consumed")
    if found.status != APPROVED:
        raise Conflict("not_approved")
    if timestamps.parse(found.document["decision"]["expires_at"]) <= database_time():
        raise Conflict("approval_expired")
    reply = slow_path.begin(sealed.ask(attempt)).body
    if isinstance(reply, TryUnderWay):
        raise Conflict("already_consumed")
    if isinstance(reply, Problem):
        raise Refused(reply)
    if reply["answer"] in {"replay", "in_doubt", "compensated"}:
        raise Conflict("already_consumed")
    if reply["answer"] != "proceed":  # the policy or a pause says otherwise by now
        raise Conflict("not_approved")
    return seen(sealed)


@transaction.atomic
def report(actor: Actor, id_: str, *, succeeded: bool, note: str) -> RequestRecord:
    """What became of the call. That it failed does not say that it did nothing."""
    sealed = _known(actor, id_)
    # One after the other, so that each hears what the first has said.
    list(locks.locked(Run.objects.filter(workspace=actor.workspace_id, run=sealed.run)))
    found = seen(sealed)
    consumption = found.document.get("consumption")
    if consumption is None or found.action is None:
        raise Conflict("not_consumed")
    status = "succeeded" if succeeded else "failed"
    if earlier := consumption.get("outcome"):
        told = masked(note, (), actor.masking_key)  # the ledger has it so
        if (earlier["status"], earlier.get("note", "")) != (status, told):
            raise Conflict("outcome_conflict")
        return found
    about = {"attempt": found.action.current_attempt, "fence": found.action.fence}
    if succeeded:
        data = about | ({"result": {"note": note}} if note else {})
        _record_event(sealed, EventType.ACTION_SUCCEEDED, data, ACTION)
        _end(sealed, EventType.RUN_COMPLETED, {})
    else:
        error = {"message": note} if note else {"message": FAILED_WITHOUT_NOTE}
        _record_event(
            sealed, EventType.ACTION_FAILED, about | {"outcome": "unknown", "error": error}, ACTION
        )
        _end(sealed, EventType.RUN_FAILED, {"error": error, "failed_action": ACTION})
    return seen(sealed)


FAILED_WITHOUT_NOTE = "The agent said that it failed, and no more."


@transaction.atomic  # told once, of however many who come to see it
def _end(sealed: SealedRequest, type_: EventType, data: dict[str, Any]) -> None:
    run = Run.objects.filter(workspace=sealed.actor.workspace_id, run=sealed.run)
    if list(locks.locked(run.filter(state=RunState.RUNNING)).values_list("pk")):
        _record_event(sealed, type_, data)


def _record_event(
    sealed: SealedRequest, type_: EventType, data: dict[str, Any], action: str = ""
) -> None:
    event = {"id": new_id(), "type": type_, "run": sealed.run, "data": data}
    parsed = wire.of_gate(sealed.actor, event | ({"action": action} if action else {}))
    if not isinstance(parsed, ParsedEvent):
        raise Refused(parsed[1])
    with transaction.atomic():
        slow_path.record(sealed.actor, [parsed])


def _approval(sealed: SealedRequest) -> Approval | None:
    """The newest question about it, if people were ever asked."""
    asked = Approval.objects.filter(
        workspace=sealed.actor.workspace_id, run_ref=sealed.run, agent=sealed.actor.agent_id
    )
    return asked.order_by("-pk").first()


def seen(sealed: SealedRequest) -> RequestRecord:
    """The request's document, made of what the tables have."""
    approval = _approval(sealed)
    actions = Action.objects.filter(
        workspace=sealed.actor.workspace_id, run__run=sealed.run, action=ACTION
    )
    action = actions.first()
    status, decision = _decision(sealed, approval)
    document = {
        **sealed.body, "id": sealed.id, "status": status, "created_at": stamp(sealed.created),
        "deadline_at": stamp(sealed.deadline),
    }  # fmt: skip
    if decision:
        document["decision"] = decision
    if status == APPROVED and action is not None and (consumed := _consumption(action)):
        document["consumption"] = consumed
    return RequestRecord(document, status, approval.pk if approval else None, action, sealed.body)


def _decision(
    sealed: SealedRequest, approval: Approval | None
) -> tuple[str, dict[str, Any] | None]:
    if approval is None:
        settled = sealed.settled or {"status": CANCELLED}
        decided = {"status": settled["status"], "decided_at": stamp(sealed.created)}
        if settled.get("note"):
            decided["note"] = settled["note"]
        if settled.get("expires_at"):
            decided["expires_at"] = stamp(datetime.fromisoformat(settled["expires_at"]))
        return settled["status"], decided
    state, until = ApprovalState(approval.state), approval.expires_at
    status = STATES[state]
    if state == ApprovalState.WITHDRAWN and approval.closing_reason == TIME_OVER:
        status = EXPIRED
    if state in LIVING and until <= database_time():
        return EXPIRED, {"status": EXPIRED, "decided_at": stamp(until)}
    if status == PENDING or grants.is_early(approval, database_time()):
        return PENDING, None
    decided = {"status": status, "decided_at": stamp(approval.decided_at or until)}
    if approval.closing_reason:
        decided["note"] = approval.closing_reason
    if status == APPROVED:
        decided["expires_at"] = stamp(until)
    return status, decided


def _consumption(action: Action) -> dict[str, Any] | None:
    if action.started_at is None:
        return None
    consumed: dict[str, Any] = {"consumed_at": stamp(action.started_at)}
    if action.finished_at is not None and action.state != ActionState.RUNNING:
        succeeded = action.state == ActionState.SUCCEEDED
        note = (
            (action.result or {}).get("note") if succeeded else (action.error or {}).get("message")
        )
        outcome = {"status": "succeeded" if succeeded else "failed",
                   "reported_at": stamp(action.finished_at)}  # fmt: skip
        if note and note != FAILED_WITHOUT_NOTE:
            outcome["note"] = note
        consumed["outcome"] = outcome
    return consumed


def checked(body: Any) -> Submission:
    """The submission, if it is one; ValueError says what is wrong."""
    body = body if isinstance(body, dict) else {}
    for name, value in body.items():
        kind = MEMBERS.get(name)
        if kind is None:
            raise ValueError(f"“{str(name)[:60]}” is no member of a request.")
        if not isinstance(value, kind) or (isinstance(value, str) and not value.strip()):
            raise ValueError(f"“{name}” does not fit.")
    for name in ("tool", "arguments", "timeout"):
        if name not in body:
            raise ValueError(f"“{name}” is missing.")
    return Submission(body, _duration(body["timeout"]))


MEMBERS: Mapping[str, type] = {
    "tool": str, "server": str, "arguments": dict, "timeout": str, "agent_reasoning": str,
    "context": dict,
}  # fmt: skip
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def _duration(text: str) -> timedelta:
    """A number and a unit, `90s`, `10m`, `24h` or `7d`."""
    number, unit = text[:-1], text[-1:]
    if unit in UNITS and number.isascii() and number.isdigit() and len(number) < 8:  # noqa: PLR2004
        found = timedelta(seconds=int(number) * UNITS[unit])
        if timedelta() < found <= TIMEOUT_MAX:
            return found
    raise ValueError("“timeout” is a number with s, m, h or d, at most 7d.")
