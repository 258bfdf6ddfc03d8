"""The Agent Approval Protocol (agentapprovalprotocol on PyPI): its endpoints below `/aap/v1/`.

An unmodified client puts its calls before our policy and our people. Where the protocol asks for
less than our gate, the gate's law holds: an approval binds its digest, is used once, and what has
changed since is asked anew, whatever the document says.
"""

import asyncio
import functools
import re
import uuid
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Concat, Now, Substr
from psycopg.errors import DeadlockDetected, LockNotAvailable, QueryCanceled, SerializationFailure

from approvals import grants, notifications
from approvals.gate import slow_path
from approvals.gate.begin_request import BODY_BYTES_MAX
from approvals.gate.covered_questions import walked
from approvals.gate.waiting import gone, waiters, waiting_agents
from approvals.interchange import aap_requests as requests
from approvals.interchange import instances
from approvals.interchange.aap_requests import (
    RUN,
    SEALED,
    TIME_OVER,
    Conflict,
    RequestRecord,
    Unknown,
    take_back,
)
from approvals.models import Approval, ApprovalState
from connectors.models import Delivery
from edge import pools
from edge.asgi import (
    RETRY_AFTER_SECONDS,
    WAIT_SECONDS_MAX,
    Handler,
    Receive,
    Refused,
    Scope,
    Send,
    answer,
    bearer,
    body_of,
    header,
    query,
    refuse,
)
from ledger import canonical, wire
from ledger.agent_keys import actor_of
from ledger.models import Run
from ledger.parsed_events import Actor
from workspaces.clock import database_time
from workspaces.models import Secret
from workspaces.periodic import each

WAIT = re.compile(r"([0-9]{1,4})s?")
KEY_CHARACTERS_MAX = 256
RECEIVERS_AT_ONCE, RECEIVERS_WAITING_MAX = 2, 20
KINDS = {400: "invalid_request", 401: "unauthorized", 403: "forbidden", 404: "not_found",
         409: "conflict", 422: "invalid_request", 429: "rate_limited",
         503: "unavailable"}  # fmt: skip


def in_its_words(handler: Callable[[Scope, Receive, Send], Awaitable[None]]) -> Handler:
    """The handler with all that can be wrong as the protocol's error document."""

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await handler(scope, receive, send)
        except Conflict as conflict:
            await _error(send, 409, conflict.code, "The request does not stand so.")
        except Unknown:
            await _error(send, 404, "not_found", "There is no such request, or no longer.")
        except Refused as refused:
            problem = refused.problem
            status = problem.status if problem.status in KINDS or problem.status >= 500 else 400  # noqa: PLR2004
            words = f"{problem.title} {problem.detail}".strip()
            await _error(send, status, problem.type.rpartition(":")[2], words, refused.headers)
        except (DeadlockDetected, LockNotAvailable, QueryCanceled, SerializationFailure):
            again = (("retry-after", str(RETRY_AFTER_SECONDS)),)
            await _error(send, 503, "overloaded", "Come back in a moment.", again)

    return answered


async def _error(
    send: Send, status: int, code: str, message: str, headers: tuple[tuple[str, str], ...] = ()
) -> None:
    kind = KINDS.get(status, "error")
    body = {"type": kind, "code": code, "message": message, "request_id": str(uuid.uuid4())}
    await answer(send, status, {"error": body}, headers)


_receivers = pools.Threads(
    "receivers", threads_max=RECEIVERS_AT_ONCE, waiting_max=RECEIVERS_WAITING_MAX
)
"""Apart from the gate's: a receiver may take its time to answer."""


async def provision(scope: Scope, receive: Receive, send: Send) -> None:
    """`POST /aap/v1/instances`: a receiver registers with the agent's key, and is verified."""
    actor = await actor_of(scope, "begin")
    key = idempotency_key(scope)
    submission = instances.checked(await strict_body(scope, receive, actor))
    is_new = not await slow_path.run_in_thread(instances.is_known, actor, key, submission)
    if is_new:
        if submission.receiver is not None:
            id_ = instances.id_of(actor, key, submission)
            await _receivers.call(instances.verify, id_, submission.receiver)
        is_new = await slow_path.run_in_thread(instances.register, actor, key, submission)
    expires = await slow_path.run_in_thread(instances.expiry, actor)
    told = instances.document(actor, key, submission, bearer(scope), expires)
    await answer(send, 201 if is_new else 200, told)


async def read_instance(scope: Scope, receive: Receive, send: Send) -> None:
    """`GET /aap/v1/instances/{id}`."""
    actor = await actor_of(scope, "begin")
    await answer(
        send, 200, await slow_path.run_in_thread(instances.shown, actor, scope["path_params"]["id"])
    )


async def change_instance(scope: Scope, receive: Receive, send: Send) -> None:
    """`PATCH /aap/v1/instances/{id}`: another receiver is verified before it takes the place."""
    actor, id_ = await actor_of(scope, "begin"), scope["path_params"]["id"]
    key, body = idempotency_key(scope), await strict_body(scope, receive, actor)
    removes = isinstance(body, dict) and "delivery" in body and body["delivery"] is None
    given = {name: body[name] for name in body if body[name] is not None} if removes else body
    submission = instances.checked(given)._replace(body=body)
    if not body:
        raise refuse("invalid_submission", "Nothing is to be changed.", 400)
    await slow_path.run_in_thread(instances.shown, actor, id_)
    told = await slow_path.run_in_thread(instances.known_change, actor, id_, key, submission)
    if told is None:
        if submission.receiver is not None:
            await _receivers.call(instances.verify, id_, submission.receiver)
        changing = functools.partial(instances.change, removes=removes)
        told = await slow_path.run_in_thread(changing, actor, id_, key, submission)
    await answer(send, 200, told)


async def remove_instance(scope: Scope, receive: Receive, send: Send) -> None:
    """`DELETE /aap/v1/instances/{id}`: it is told nothing more; again is as once."""
    actor = await actor_of(scope, "begin")
    await slow_path.run_in_thread(instances.remove, actor, scope["path_params"]["id"])
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def create(scope: Scope, receive: Receive, send: Send) -> None:
    """`POST /aap/v1/requests`: 201, or 200 with the same request for the same key."""
    actor = await actor_of(scope, "begin")
    key = idempotency_key(scope)
    if key.startswith(requests.DOCUMENTS):
        raise refuse("reserved_key", f"Keys with {requests.DOCUMENTS} are those of documents.", 400)
    body = await strict_body(scope, receive, actor)
    try:
        submission = requests.checked(body)
    except ValueError as wrong:
        raise refuse("invalid_submission", str(wrong), 400) from wrong
    seen, is_new = await slow_path.run_in_thread(requests.create, actor, key, submission)
    await answer(send, 201 if is_new else 200, seen.document)


async def read(scope: Scope, receive: Receive, send: Send) -> None:
    """`GET /aap/v1/requests/{id}?wait=25s`: at once, or as soon as it is decided."""
    actor = await actor_of(scope, "begin")
    seen = await waited(scope, receive, actor, scope["path_params"]["id"])
    await answer(send, 200, seen.document)


async def waited(scope: Scope, receive: Receive, actor: Actor, id_: str) -> RequestRecord:
    """The request as it stands, at the latest when the caller has waited as long as it wants."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _wait(scope)
    went = asyncio.ensure_future(gone(receive))
    try:
        seen = await slow_path.run_in_thread(requests.read, actor, id_)
        while seen.status == requests.PENDING and seen.approval and waiters.left(end) > 0:
            with waiters.registered(seen.approval) as decided:
                seen = await slow_path.run_in_thread(requests.read, actor, id_)
                if seen.status == requests.PENDING:
                    with waiting_agents.track_inprogress():
                        await asyncio.wait({decided, went}, timeout=waiters.left(end),
                                           return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
                    seen = await slow_path.run_in_thread(requests.read, actor, id_)
            if went.done():
                raise refuse("disconnected", "The client went away", 400)
    finally:
        went.cancel()
    return seen


async def cancel(scope: Scope, receive: Receive, send: Send) -> None:
    """`DELETE /aap/v1/requests/{id}`."""
    actor = await actor_of(scope, "begin")
    seen = await slow_path.run_in_thread(requests.cancel, actor, scope["path_params"]["id"])
    await answer(send, 200, seen.document)


async def consume(scope: Scope, receive: Receive, send: Send) -> None:
    """`POST /aap/v1/requests/{id}/consume`: once; the same key again is the same answer."""
    actor = await actor_of(scope, "begin")
    key, id_ = idempotency_key(scope), scope["path_params"]["id"]
    seen = await slow_path.run_in_thread(requests.consume, actor, id_, key)
    await answer(send, 200, seen.document)


async def outcome(scope: Scope, receive: Receive, send: Send) -> None:
    """`POST /aap/v1/requests/{id}/outcome`."""
    actor = await actor_of(scope, "begin")
    succeeded, note = await reported_outcome(scope, receive, actor)
    seen = await slow_path.run_in_thread(report, actor, scope["path_params"]["id"], succeeded, note)
    await answer(send, 200, seen.document)


async def reported_outcome(scope: Scope, receive: Receive, actor: Actor) -> tuple[bool, str]:
    """What a body says became of a call: whether it succeeded, and a note."""
    body = await strict_body(scope, receive, actor)
    note = body.get("note", "") if isinstance(body, dict) else None
    if (
        not isinstance(body, dict)
        or body.keys() - {"status", "note"}
        or body.get("status") not in ("succeeded", "failed")  # any JSON, so not a set's to ask
        or not isinstance(note, str)
    ):
        raise refuse("invalid_outcome", "An outcome is succeeded or failed, with a note.", 400)
    return body["status"] == "succeeded", note[: requests.NOTE_CHARACTERS_MAX]


def report(actor: Actor, id_: str, succeeded: bool, note: str) -> RequestRecord:  # noqa: FBT001 - through a thread
    return requests.report(actor, id_, succeeded=succeeded, note=note)


def idempotency_key(scope: Scope) -> str:
    key = header(scope, b"idempotency-key")
    if not 0 < len(key) <= KEY_CHARACTERS_MAX:
        raise refuse("missing_idempotency_key", "Send an Idempotency-Key.", 400)
    return key


def _wait(scope: Scope) -> float:
    given = query(scope, "wait", "0")
    found = WAIT.fullmatch(given)
    if found is None:
        raise refuse("invalid_wait", "“wait” is a number of seconds, as 25s.", 400)
    return float(min(int(found[1]), WAIT_SECONDS_MAX))


async def strict_body(scope: Scope, receive: Receive, actor: Actor) -> Any:
    raw = await body_of(scope, receive, BODY_BYTES_MAX, workspace=actor.workspace_id)
    try:
        value = msgspec.json.decode(raw)  # strictly: Python's own takes NaN, and half characters
        twice = wire.repeated(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as wrong:
        raise refuse("malformed", "The body is not JSON", 400) from wrong
    if twice:
        raise refuse("duplicate_name", "A name stands twice in one object:", 400, twice)
    if number := canonical.rounded(raw):
        raise refuse("unfit", "A number has more digits than a double:", 400, number)
    return value


# What time does to requests: one that waits for longer than its agent wanted is taken back, whoever
# registered hears of its end or its moment, and what was sealed of it is thrown away. One that
# cannot be dealt with keeps no other from its turn.

KEPT_DAYS = 8
ENDED_DAYS = 1
FORGOTTEN_AT_A_TIME = 500
TOLD_LATE_MAX = timedelta(days=1)
"""So long after its moment a receiver is still woken, though nothing ran meanwhile."""


def take_back_overdue() -> int:
    """Take back what waits longer than its agent wanted, though nobody comes to ask; how many."""
    waits = Q(state=ApprovalState.WAITING) | Q(
        state=ApprovalState.GRANTED, not_before__gt=Now(), expires_at__gt=Now()
    )
    asked = Approval.objects.filter(waits, run_ref__startswith=RUN)
    return each(walked(asked), _take_back_overdue)


def _take_back_overdue(approval: Approval) -> bool:
    """Where no key opens what was sealed nobody knows its time: its rule's own is its end."""
    name = f"{SEALED}{approval.run_ref.removeprefix(RUN)}"
    secret = Secret.objects.filter(workspace=approval.workspace_id, name=name).first()
    if secret is None or datetime.fromisoformat(secret.open()["deadline"]) > database_time():
        return False
    take_back(approval, TIME_OVER)
    return True


def _tell_receivers(approval: Approval) -> None:
    """Whoever registered for it hears that a request has an end, whoever or whatever ended it; of
    one that was approved for later they hear at its moment, for until then it is pending.
    """
    if approval.agent_id is None or not approval.run_ref.startswith(RUN):
        return
    row, now = Approval.objects.get(pk=approval.pk), database_time()
    if not grants.is_early(row, now):
        request = approval.run_ref.removeprefix(RUN)
        instances.tell(approval.agent_id, request, row.decided_at or now)


def tell_put_off() -> int:
    """Wake the receivers of what was approved for later, once its moment has come; how many."""
    return each(walked(put_off()), _tell_put_off)


@transaction.atomic
def _tell_put_off(approval: Approval) -> bool:
    _tell_receivers(approval)
    return True


def put_off() -> QuerySet[Approval]:
    """Requests that were approved for a moment which has come, and whose receivers do not know."""
    key = Concat(Value("aap "), Substr(OuterRef("run_ref"), len(RUN) + 1), Value("/"))
    told = Delivery.objects.filter(workspace=OuterRef("workspace"), key__startswith=key)
    return Approval.objects.filter(
        ~Exists(told),
        state=ApprovalState.GRANTED,
        run_ref__startswith=RUN,
        not_before__range=(Now() - TOLD_LATE_MAX, Now()),
        expires_at__gt=Now(),
    )


notifications.when_ended.append(_tell_receivers)


def forget_old() -> int:
    """Throw away what was sealed of requests that are over, or whose run was forgotten."""
    # A run's name is its agent's choice: only one of the same workspace is the request's.
    its_run = Concat(Value(RUN), Substr(OuterRef("name"), len(SEALED) + 1))
    over = Run.objects.filter(workspace=OuterRef("workspace"), run=its_run).filter(
        Q(forgotten_at__isnull=False) | Q(ended_at__lt=Now() - timedelta(days=ENDED_DAYS))
    )
    old = Secret.objects.filter(name__startswith=SEALED).filter(
        Exists(over) | Q(created_at__lt=Now() - timedelta(days=KEPT_DAYS))
    )
    pks = list(old.values_list("pk", flat=True)[:FORGOTTEN_AT_A_TIME])
    return Secret.objects.filter(pk__in=pks).delete()[0]
