"""`POST /api/v1/actions/begin`: the tool boundary in one round trip, by one of two paths.

The fast path is here: the usual `begin` in one statement, with it the sums of rules that only hold
them against numbers; or in two where rules ask more of what is remembered. Most calls come under a
key never met, are allowed by rule, and belong to a run that goes well. What that decision rests on
beside the call itself (the policy in force, the pauses, the labels of the run) this process has
seen a moment ago. So it is judged by that, and the function `gate_begin` proceeds if policy and
pauses are still so when it meets the key, which is before it waits for the run's lock, and if under
that lock the run's labels are as they were and nothing is known of the call; with `gate_remember`,
if no sum that was read has moved since.

Whatever is not so is left to the slow path (`approvals.gate.slow_path`), which looks, decides by
the table and records. Both leave the same rows, and a test compares them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import parse_qs

import msgspec
from django.utils import timezone
from psycopg.errors import DeadlockDetected, SerializationFailure, UniqueViolation

from approvals import memory
from approvals.gate import gathering, slow_path
from approvals.gate.begin_context import (
    BeginContext,
    Gathered,
    ScalarQuery,
    WorkspaceSnapshot,
    announces_new_schema,
    seen_labels,
    seen_snapshot,
)
from approvals.gate.begin_request import BODY_BYTES_MAX, BeginRequest, parse
from approvals.gate.decision_table import (
    BeginResponse,
    Proceed,
    breach_after_pivot,
    pause_of,
    with_address,
)
from approvals.policy import (
    Lookup,
    Policy,
    ToolCall,
    active_policies,
    class_of,
    lookups,
    saga_of,
    verdict,
)
from edge import pools, tracing
from edge.asgi import Problem, Receive, Scope, Send, answer, answer_problem, body_of, refuse
from ledger.agent_keys import actor_of
from ledger.append import events
from ledger.append.statements import array

FIRST_FENCE = 1


class BeginAnswer(msgspec.Struct, omit_defaults=True):
    """What is answered, for the page of the API; docs/wire.md says which members go with which."""

    answer: Literal["proceed", "wait", "denied", "in_doubt", "replay", "compensated", "refused"]
    action: str = ""
    run: str = ""
    fence: int = 0
    lease_until: str = ""
    lease_seconds: int = 0
    approval: str = ""
    url: str = ""
    expires_at: str = ""
    arguments: dict[str, Any] = {}
    code: str = ""
    reason: str = ""
    result: Any = None
    next_key: str = ""
    problem: Problem | None = None
    warning: Problem | None = None
    explain: dict[str, Any] = {}


_BEGIN = f"gate_begin(%b::text, %b::bigint[], %b::text, {events.BEGIN_PARAMETERS})"
BEGIN = pools.numbered(f"SELECT {_BEGIN}")
BEGIN_REMEMBERED = pools.numbered(f"SELECT gate_remember({_BEGIN}, {memory.REMEMBER_PARAMETERS})")
BEGIN_WITHIN = pools.numbered(memory.remember_within(_BEGIN))
EPOCH = datetime.fromtimestamp(0, UTC)


async def begin(scope: Scope, receive: Receive, send: Send) -> None:
    actor = await actor_of(scope, "begin")
    explain = _explain(scope)
    sent = await body_of(scope, receive, BODY_BYTES_MAX, workspace=actor.workspace_id)
    request = parse(sent, actor, explain=explain)
    planned = request.planned
    with tracing.span(
        "begin", trace=planned.trace, workspace=actor.workspace, agent=actor.name,
        run=planned.run, action=planned.action,
    ) as span:  # fmt: skip
        reply = await begin_fast(request)
        if reply is None:
            reply = await slow_path.begin_awaited(request)
        body = reply.body if isinstance(reply.body, dict) else {}
        span.set(answer=body.get("answer", "refused"), approval=body.get("approval"))
    if isinstance(reply.body, Problem):
        await answer_problem(send, reply.body, reply.headers)
    else:
        warned = events.warning(planned, timezone.now())
        told = body | {"warning": warned} if warned else body
        if "lease_until" in told:  # for whoever has another clock
            told = told | {"lease_seconds": actor.stuck_after_seconds}
        await answer(send, 200, with_address(told, actor.workspace))


def _explain(scope: Scope) -> bool:
    """Whether it is only asked what would be. Another spelling of it must not begin anything, so
    nothing else may stand behind the address.
    """
    text = scope.get("query_string", b"").decode("latin-1")
    given = parse_qs(text, keep_blank_values=True) if text else {}
    if given and (set(given) != {"explain"} or set(given["explain"]) != {"1"}):
        raise refuse("schema", "Behind the address stands “explain=1”, or nothing", 422)
    return bool(given)


async def begin_fast(request: BeginRequest) -> BeginResponse | None:
    """Proceed at once, or None where the slow path must look."""
    call = usual_call(request)
    if call is None:
        return None
    needed = lookups(call.policy, call.judged)
    if not all(map(gathering.is_of_memory, needed)):
        return None
    try:
        async with pools.AutocommitConnection() as connection:
            if needed:
                row = await _begin_remembered(connection, call, needed)
            elif verdict(call.policy, call.judged) == "AUTO":
                row = await _asked(connection, BEGIN, gate_begin_arguments(call))
            else:
                return None
    except (UniqueViolation, SerializationFailure, DeadlockDetected):
        # Of an id, which the slow path says duplicate or conflict of; of a sum; or of locks.
        return None
    until = row[0] if row else None
    if until is None:
        return None
    planned = request.planned
    return BeginResponse(
        Proceed(planned.run, planned.action, FIRST_FENCE, is_planned=False).as_body(until)
    )


async def _asked(
    connection: pools.HotConnection, sql: str, values: Sequence[Any]
) -> tuple[datetime | None] | None:
    """Until when the call has its lease, or None in its place where it is not as it was seen; no
    row where a sum is beyond its cap, or has to be looked at.
    """
    cursor = await connection.execute_raw(sql, values)
    return await cursor.fetchone()


@dataclass(frozen=True, slots=True)
class UsualCall:
    """A call as it is judged by what this process saw last."""

    request: BeginRequest
    policy: Policy
    snapshot: WorkspaceSnapshot
    labels: Mapping[str, Any]
    judged: ToolCall


def usual_call(request: BeginRequest) -> UsualCall | None:
    """None where it is no usual call."""
    if announces_new_schema(request):
        return None
    snapshot = seen_snapshot(request)
    policy = active_policies.known(snapshot.policy_digest) if snapshot else None
    if request.explain or snapshot is None or policy is None:
        return None
    if pause_of(request, snapshot.pauses, policy):
        return None
    if policy.of_tool(request.tool).review:
        return None
    labels = seen_labels(request)
    return UsualCall(request, policy, snapshot, labels, request.tool_call(labels))


async def _begin_remembered(
    connection: pools.HotConnection, call: UsualCall, needed: Sequence[Lookup]
) -> tuple[datetime | None] | None:
    """Begin it by one statement where it goes on whatever else the rules would find, as long as its
    sums stay within their caps; else by a look at all that they ask, and another.
    """
    gathered = _nothing_found(call)
    queries = gathering.queries_of(gathered, needed)
    run, action = call.request.planned.run, call.request.planned.action
    arguments = gate_begin_arguments(call)
    capped = gathering.capped(queries, gathered)
    if capped is not None:
        caps, within = capped
        judged = replace(call.judged, findings=gathered.findings | within)
        if verdict(call.policy, judged) == "AUTO":
            values = gathered.memory_values_within(run, action, caps)
            row = await _asked(connection, BEGIN_WITHIN, [*arguments, *values])
            if row is not None:
                return row
            gathering.leave_alone((meter for meter, _ in caps), gathered.caller)
    await _look_up(connection, gathered, queries)
    if verdict(call.policy, replace(call.judged, findings=gathered.findings)) != "AUTO":
        return None
    values = gathered.memory_values(run, action)
    return await _asked(connection, BEGIN_REMEMBERED, [*arguments, *values])


def _nothing_found(call: UsualCall) -> Gathered:
    """A call of which nothing is known, neither its run nor what the rules ask."""
    unknown = BeginContext(
        now=EPOCH, lease_of="", lease_until=None, denied="",
        policy_digest=call.snapshot.policy_digest,
    )  # fmt: skip
    return Gathered(call.request, unknown, call.policy, call.judged)


async def _look_up(
    connection: pools.HotConnection, gathered: Gathered, queries: Mapping[str, ScalarQuery]
) -> None:
    """What the rules ask of memory, read without a lock: `gate_remember` writes nothing if a sum
    was changed meanwhile.
    """
    sql, values = gathering.combined(queries, gathered.caller)
    cursor = await connection.execute_raw(pools.numbered(sql), values)
    [(row,)] = await cursor.fetchall()
    now, scalars = gathering.decode_row(row)
    gathered.context = replace(gathered.context, now=now)
    gathered.findings |= gathering.results(queries, scalars)


def gate_begin_arguments(call: UsualCall) -> list[Any]:
    """What `gate_begin` is to hold against the database."""
    request, policy = call.request, call.policy
    action_class = class_of(policy, call.judged)
    planned = request.planned
    return [
        call.snapshot.policy_digest,
        array(one.id for one in call.snapshot.pauses),
        request.subject_key,
        *events.begin_arguments(
            request.actor,
            planned,
            request.started(
                planned.run,
                planned.action,
                FIRST_FENCE,
                action_class,
                saga=saga_of(policy, call.judged, action_class),
            ),
            labels=call.labels if policy.reads_labels else None,
            may_follow_pivot=(
                policy.order_law == "WARN" or not breach_after_pivot(request, action_class)
            ),
        ),
    ]
