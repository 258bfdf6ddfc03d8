"""`POST /api/v1/actions/begin`: the tool boundary in one round trip.

The usual call proceeds in one statement (`approvals.gate.begin`). Of the others, what needs no
people is answered here, on the awaited connection: look under the key's lock, decide by the table,
record. What needs people, or the desk's own word in the ledger, is done in
`approvals.gate.slow_path`, under the same lock and by the same table.
"""

from collections.abc import Generator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs

import msgspec
from psycopg.errors import UniqueViolation

from approvals import denials
from approvals.gate import slow_path, snapshot_cache
from approvals.gate.begin_context import BeginContext, found_in, reads
from approvals.gate.begin_request import BODY_BYTES_MAX, BeginRequest, ask_of
from approvals.gate.decision_table import (
    BY_RULE,
    Answer,
    Denied,
    InDoubt,
    InProgress,
    Proceed,
    breach_after_pivot,
    decide,
    pause_of,
)
from approvals.gate.policy_document import compiled
from approvals.gate.responses import Reply, explained, of_proceed, with_address
from approvals.policy import active_policies, verdict
from edge import pools
from edge.asgi import Problem, Receive, Scope, Send, answer, answer_problem, body_of, refuse
from ledger import drivers
from ledger.agent_keys import speaker_of
from ledger.append import events
from ledger.append.events import Batch
from ledger.append.statements import LastWrites, Statement
from ledger.drivers import Rows

# The fast path: the usual `begin` in one statement.
#
# Most calls come under a key never met, are allowed by rule, and belong to a run that goes well.
# What that decision rests on beside the call itself (the policy in force, the pauses, the labels
# of the run) this process has seen a moment ago. So it is judged by that, and the function
# `gate_begin` proceeds if all of it still holds under the locks and nothing is known of the call.
#
# Whatever is not so is left to the slow path, which looks, decides by the table and records; both
# leave the same rows, and a test compares them.

FIRST_FENCE = 1

BEGIN = f"SELECT gate_begin(%b::text, %b::bigint[], %b::text, {events.PARAMETERS})"


async def begin_fast(ask: BeginRequest) -> Reply | None:
    """Proceed at once, or None where the general way must look."""
    given = arguments(ask)
    if given is None:
        return None
    try:
        async with pools.AutocommitConnection() as connection:
            row = await (await connection.execute(BEGIN, given)).fetchone()
    except UniqueViolation:  # of an event's id: the general way says duplicate or conflict
        return None
    until: datetime | None = row[0] if row else None
    if until is None:
        return None
    decision = Proceed(ask.planned.run, ask.planned.action, FIRST_FENCE, is_planned=False)
    return Reply(of_proceed(decision, until))


def arguments(ask: BeginRequest) -> list[Any] | None:
    """What `gate_begin` is to hold against the database; None where it is no usual call."""
    seen = snapshot_cache.standing(ask)
    policy = active_policies.known(seen.policy_digest) if seen else None
    if ask.explain or seen is None or policy is None or pause_of(ask, seen.pauses, policy):
        return None
    labels = snapshot_cache.labels(ask)
    said, action_class = verdict(policy, ask.deed(labels))
    if said != "AUTO":
        return None
    act = ask.planned
    return [
        seen.policy_digest,
        [one.id for one in seen.pauses],
        ask.subject_key,
        *events.arguments(
            ask.speaker,
            act,
            ask.started(act.run, act.action, FIRST_FENCE),
            labels=labels if policy.reads_labels else None,
            may_follow_pivot=(
                policy.order_law == "WARN" or not breach_after_pivot(ask, action_class)
            ),
        ),
    ]


TRIES_MAX = 3
Steps = Generator[list[Statement], list[Rows], "Outcome"]

RENEW_KEY = """
UPDATE approvals_gatekey SET attempt = %b, lease_until = %b, denied = ''
WHERE agent_id = %b AND key = %b"""
RENEW_LEASE = """
UPDATE approvals_gatekey SET lease_until = %b WHERE agent_id = %b AND key = %b AND attempt = %b"""
RENEW_RUN = """
UPDATE ledger_run SET lease_until = greatest(lease_until, %b) WHERE id = %b AND held_by = ''"""


@dataclass(frozen=True, slots=True)
class NeedsPolicy:
    """This process has not compiled the policy in force."""

    digest: str


@dataclass(frozen=True, slots=True)
class NeedsTime:
    """People or the desk's own word are needed."""


Outcome = Reply | NeedsPolicy | NeedsTime


async def begin(scope: Scope, receive: Receive, send: Send) -> None:
    speaker = await speaker_of(scope, "begin")
    explain = _explain(scope)
    body = await body_of(scope, receive, BODY_BYTES_MAX)
    ask = ask_of(body, speaker, explain=explain)
    try:
        reply = await _answered(ask)
    except InProgress as busy:
        told = {**msgspec.to_builtins(busy.problem), "lease_until": busy.lease_until.isoformat()}
        await answer(send, 409, told, busy.headers, "application/problem+json")
        return
    if isinstance(reply.body, Problem):
        await answer_problem(send, reply.body, reply.headers)
    else:
        await answer(send, 200, with_address(reply.body, speaker.workspace), reply.headers)


def _explain(scope: Scope) -> bool:
    """Whether it is only asked what would be. Another spelling of it must not begin anything."""
    text = scope.get("query_string", b"").decode("latin-1")
    given = parse_qs(text, keep_blank_values=True).get("explain")
    if given is not None and set(given) != {"1"}:
        raise refuse("schema", "“explain” is 1, or left out", 422)
    return given is not None


async def _answered(ask: BeginRequest) -> Reply:
    reply = await begin_fast(ask)
    if reply is not None:
        return reply
    for _ in range(TRIES_MAX):
        async with pools.pool().connection() as connection:
            outcome = await drivers.commit_async(steps(ask), connection)
        if isinstance(outcome, Reply):
            return outcome
        if isinstance(outcome, NeedsTime):
            return await slow_path.call(slow_path.begin, ask)
        await compiled(ask.speaker.workspace_id, outcome.digest)
    raise refuse("busy", "The policy changes too fast to judge", 503)


def steps(ask: BeginRequest) -> Steps:  # noqa: PLR0911 - one per kind of decision
    """Look, decide, and write where that needs nobody. Without I/O of its own."""
    found = found_in((yield reads(ask)))
    snapshot_cache.note(ask, found)
    policy = active_policies.known(found.policy_digest)
    if policy is None:
        return NeedsPolicy(str(found.policy_digest))
    decision, judgement = decide(ask, found, policy)
    if ask.explain:
        return explained(ask, found, decision, judgement)
    if isinstance(decision, Answer):
        if decision.renews:
            yield LastWrites(_renewals(ask, found))
        return Reply(decision.body)
    if isinstance(decision, InDoubt) and not decision.is_new:
        return Reply({"answer": "in_doubt", "action": decision.known.action})
    if isinstance(decision, Denied) and _is_told(found, decision):
        if decision.code == BY_RULE:
            yield LastWrites([denials.again(ask.speaker.agent_id or 0, ask.key, ask.planned.run)])
        return Reply(decision.as_body())
    if isinstance(decision, Proceed) and not decision.replaces:
        return (yield from _proceed(ask, found, decision))
    return NeedsTime()


def _is_told(found: BeginContext, decision: Denied) -> bool:
    """Whether the ledger knows of it, and nobody has to be told that it happens again and again."""
    if decision.code != BY_RULE:
        return found.denied == decision.code
    return bool(found.denials_of_key) and not slow_path.is_often(found)


def _proceed(ask: BeginRequest, found: BeginContext, decision: Proceed) -> Steps:
    events = [ask.started(decision.run, decision.action, decision.fence)]
    if not decision.is_planned:
        events.insert(0, ask.planned)
    batch = Batch(ask.speaker, events)
    yield from batch.meet_runs()
    yield from batch.meet_keys()
    for what in batch.problems.values():
        return Reply(what)
    until = found.now + timedelta(seconds=ask.speaker.stuck_after_seconds)
    keep = (RENEW_KEY, [ask.attempt, until, ask.speaker.agent_id, ask.key])
    yield LastWrites([*batch.writes(), keep])
    return Reply(of_proceed(decision, until))


def _renewals(ask: BeginRequest, found: BeginContext) -> list[Statement]:
    until = found.now + timedelta(seconds=ask.speaker.stuck_after_seconds)
    renewals: list[Statement] = [(RENEW_LEASE, [until, ask.speaker.agent_id, ask.key, ask.attempt])]
    if found.run is not None:
        renewals.append((RENEW_RUN, [until, found.run.id]))
    return renewals
