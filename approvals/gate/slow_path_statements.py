"""The slow path of `begin` as statements: lock and read, decide by the table, record.

The key is locked first, then the run; everything else is read after both, so that no change which
was committed during the wait is missed. `look_and_decide` is a generator of statements and does not
know who runs them (`ledger.drivers`): an async connection, or Django's in a thread. What takes more
than statements is returned as `Decided`, and the thread does it (`approvals.gate.slow_path`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

from amends.protocol.vocabulary import EventType
from approvals import memory
from approvals.gate import bounded_grants
from approvals.gate.begin_context import (
    BeginContext,
    Gathered,
    announces_new_schema,
    as_approved,
    context_of,
    note_seen,
    reads,
)
from approvals.gate.begin_request import BeginRequest
from approvals.gate.decision_table import (
    BY_RULE,
    CHANGED,
    BeginResponse,
    Decision,
    Denied,
    InDoubt,
    InProgress,
    KnownAnswer,
    Proceed,
    decide,
    judged,
)
from approvals.gate.gathering import gather, reads_texts
from approvals.models import RESTORED
from approvals.policy import (
    Policy,
    PolicyDecision,
    PolicyUnreadable,
    active_policies,
    class_of,
    fitting_rules,
    saga_of,
)
from edge.asgi import Refused, problem, refuse
from ledger.append import events as append
from ledger.append.statements import GOES_ON, LastWrites, Statement, json_text
from ledger.canonical import canonical_of
from ledger.drivers import StatementGenerator
from ledger.parsed_events import ParsedEvent
from workspaces.locks import ADVISORY_SHARED

DETAIL_CHARACTERS_MAX = 500
DENIED_CHARACTERS_MAX = 20
"""Of `GateKey.denied`: behind the mark of a restore no two codes begin alike for so long."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision that only the thread can carry out, on Django's connection."""

    context: BeginContext
    policy: Policy
    gathered: Gathered
    judgement: PolicyDecision
    decision: Decision


def look_and_decide(  # noqa: PLR0911 - one per kind of decision
    request: BeginRequest, *, in_thread: bool
) -> StatementGenerator[BeginResponse | Decided | Refused | None]:
    """Lock, read, decide, and carry the decision out where statements alone do it. None if the
    thread has to begin anew: to compile the policy, read long texts, or note a tool's announcement.
    `Decided` if it has more to do than statements, and always with `explain`, which writes nothing.
    `Refused` is to be raised after the commit of what was only read: at a rollback psycopg forgets
    all that it prepared, and one agent's mistakes made the calls of others be planned anew.
    """
    asks = in_thread and not request.explain
    context = yield from read_context(request, asks=asks)
    policy = active_policies.known(context.policy_digest)
    if not in_thread and (
        policy is None
        or request.explain
        or announces_new_schema(request)
        or reads_texts(policy, as_approved(request, context).tool_call(context.labels))
    ):
        return None
    policy = policy or policy_in_force(request.actor.workspace_id, context.policy_digest)
    note_seen(request, context)
    gathered = yield from gather(request, context, policy)
    try:
        decision, judgement = decide(request, context, policy, gathered.findings)
    except Refused as refused:
        return refused
    if request.explain:
        return Decided(context, policy, gathered, judgement, decision)
    match decision:
        case KnownAnswer():
            reply = BeginResponse(decision.body | (yield from _drawn(request, decision.body)))
            check_accepted(request, reply)
            if decision.renews:
                yield renewals(request, context)
            return reply
        case Proceed():
            reviewed = review_statements(request, context, policy, gathered, decision)
            return (yield from record_start(request, context, decision, gathered, reviewed))
        case Denied() if is_on_record(context, decision) and not needs_a_look(context, decision):
            if decision.code == BY_RULE:
                yield LastWrites([denial_statement(request, context)])
            return BeginResponse(decision.as_body())
        case InDoubt() if not decision.is_new:
            return BeginResponse(decision.as_body())
        case InProgress():
            return decision.as_reply()
    return Decided(context, policy, gathered, judgement, decision)


# The bounded grant under which a try began: it is the first one since that use.
DRAWN = """
SELECT u.approval_id FROM approvals_approval p
JOIN approvals_grantuse u ON u.approval_id = p.id AND u.agent_id = %b AND u.key = %b
JOIN ledger_run r ON r.workspace_id = p.workspace_id AND r.run = u.run_ref AND r.run = %b
JOIN ledger_action a ON a.run_id = r.id AND a.action = u.action AND a.action = %b
JOIN LATERAL (SELECT t.attempt FROM ledger_attempt t
    WHERE t.action_id = a.id AND t.started_at >= u.at ORDER BY t.fence LIMIT 1) first ON true
WHERE p.workspace_id = %b AND p.subject_key = %b AND p.subject_kind = 'grant'
    AND first.attempt = %b ORDER BY u.at DESC LIMIT 1"""


def _drawn(request: BeginRequest, body: Mapping[str, Any]) -> StatementGenerator[dict[str, str]]:
    """What the first answer to this try said of the grant, where its answer is given again."""
    if body["answer"] != "proceed" or "approval" in body:
        return {}
    actor = request.actor
    subject = bounded_grants.subject_key(actor.agent_id or 0, request.tool)
    about = [actor.agent_id, request.key, body["run"], body["action"], actor.workspace_id, subject,
             request.attempt]  # fmt: skip
    found = yield [(DRAWN, about)]
    return {"approval": str(found[0][0][0])} if found[0] else {}


def judged_as_asked(request: BeginRequest, found: Decided) -> StatementGenerator[Decided]:
    """Judge the call as the agent asks for it, where what an approver had made of it is void; it is
    made unasked no more than that was.
    """
    context = replace(found.context, approval=None)
    gathered = yield from gather(request, context, found.policy)
    judgement = judged(request, context, found.policy, gathered.findings)
    if judgement.approval == "AUTO":
        judgement = judgement.but_asked(f"{CHANGED}; {judgement.why}")
    return replace(found, context=context, gathered=gathered, judgement=judgement)


NOT_ACCEPTED = problem(
    "changed-arguments",
    "An approver changed the arguments, and this client takes none but its own",
    422,
    "The call was approved with other arguments than are asked for. Make it with a client that says"
    " “accepts_changed_arguments”, or end this run.",
)


def check_accepted(request: BeginRequest, reply: BeginResponse) -> None:
    """Nobody hears arguments that an approver changed who has not said that they take such: they
    would make the call with their own.
    """
    has_changed = isinstance(reply.body, dict) and "arguments" in reply.body
    if has_changed and not request.accepts_changed_arguments:
        raise Refused(NOT_ACCEPTED)


def policy_in_force(workspace_id: int, digest: str | None) -> Policy:
    """The compiled policy of a workspace. Where it cannot be read the desk is not away, it says no:
    an agent must not go on by an older policy of its own.
    """
    try:
        return active_policies.known(digest) or active_policies.active(workspace_id)
    except PolicyUnreadable as wrong:
        title = "The policy in force cannot be read"
        detail = f"{title}, so no call may be made until a person mends it: {wrong}"
        raise refuse("policy-unreadable", title, 422, detail[:DETAIL_CHARACTERS_MAX]) from wrong


# Whoever waits for a key or a run for longer is told to come back.
LOCK_TIMEOUT: Statement = ("SET LOCAL lock_timeout = '5s'", ())


ASKING = 0xA5C0
"""The first half of the advisory lock's key: who asks people shares it, and waits for whoever looks
at what is asked while something changes that would answer it (`policy_since.answering_none`)."""


def read_context(request: BeginRequest, *, asks: bool = False) -> StatementGenerator[BeginContext]:
    """Lock and read; where it `asks` people perhaps, in turn with who must see each question."""
    asking: Statement = (ADVISORY_SHARED, [ASKING, request.actor.workspace_id])
    first = [LOCK_TIMEOUT, asking] if asks else [LOCK_TIMEOUT]
    rows = yield [*first, *reads(request)]
    return context_of(rows[len(first) :])


# The key's lease, and the run's, from now on for as long as the policy gives a try.

RENEW_KEY = """
UPDATE approvals_gatekey SET attempt = %b, lease_until = %b,
    denied = CASE WHEN starts_with(denied, 'restored') THEN 'restored' ELSE '' END
WHERE agent_id = %b AND key = %b"""
RENEW_LEASE = """
UPDATE approvals_gatekey SET lease_until = %b WHERE agent_id = %b AND key = %b AND attempt = %b"""
RENEW_RUN = f"""
UPDATE ledger_run r SET lease_until = greatest(lease_until, %b) WHERE id = %b AND {GOES_ON}"""  # noqa: S608
# Another client may have come to wait for it, after a restart.
NOTE_CLIENT = """
UPDATE approvals_approval SET accepts_changed_arguments = %b
WHERE id = %b AND state = 'waiting' AND accepts_changed_arguments <> %b"""
EARLIER_PLANS = """
SELECT event_id FROM ledger_event
WHERE workspace_id = (SELECT %b::bigint) AND run = %b AND action = %b AND type = %b"""


def renewals(request: BeginRequest, context: BeginContext) -> LastWrites:
    until = context.now + timedelta(seconds=request.actor.stuck_after_seconds)
    lease = [until, request.actor.agent_id, request.key, request.attempt]
    renewals = LastWrites([(RENEW_LEASE, lease)])
    if context.run is not None:
        renewals.append((RENEW_RUN, [until, context.run.id]))
    if context.approval is not None:
        accepts = request.accepts_changed_arguments
        renewals.append((NOTE_CLIENT, [accepts, context.approval.id, accepts]))
    return renewals


# What the policy says under `review` is worth a second look: such a call goes on, and once it has
# taken effect its run is a case of low risk. What cannot be told opens none: people would look at
# nothing, again and again.
KEEP_REVIEW = """
INSERT INTO approvals_review (workspace_id, run_ref, action, glob, words, at)
SELECT %b, %b, %b, u.glob, u.words, clock_timestamp()
FROM unnest(%b::text[], %b::text[]) AS u (glob, words)
ON CONFLICT (workspace_id, run_ref, action, words) DO NOTHING"""
REVIEWS_OF_A_CALL_MAX = 5
REVIEW_CHARACTERS_MAX = 300


def review_statements(
    request: BeginRequest,
    context: BeginContext,
    policy: Policy,
    gathered: Gathered,
    decision: Proceed,
) -> list[Statement]:
    """Puts a call that goes on unasked, and is unlike what its agent did before, up for review."""
    review = policy.of_tool(request.tool).review
    if not review:
        return []
    facts = fitting_rules(policy, request.tool_call(context.labels, gathered.findings))[1]
    met = [rule for rule in review if rule.met(facts, "AUTO")][:REVIEWS_OF_A_CALL_MAX]
    globs = [rule.glob for rule in met]
    # They name no value of the call.
    words = [(rule.words or rule.in_words())[:REVIEW_CHARACTERS_MAX] for rule in met]
    here = request.actor.workspace_id
    return [(KEEP_REVIEW, [here, decision.run, decision.action, globs, words])] if met else []


def record_start(
    request: BeginRequest,
    context: BeginContext,
    decision: Proceed,
    gathered: Gathered,
    more: Sequence[Statement] = (),
) -> StatementGenerator[BeginResponse]:
    events = [] if decision.is_planned else [(yield from planned_event(request, decision))]
    action_class = class_of(gathered.policy, gathered.call)
    started = request.started(
        decision.run, decision.action, decision.fence, action_class, decision.arguments,
        saga=saga_of(gathered.policy, gathered.call, action_class),
    )  # fmt: skip
    events.append(started)
    until = context.now + timedelta(seconds=request.actor.stuck_after_seconds)
    lease = (RENEW_KEY, [request.attempt, until, request.actor.agent_id, request.key])
    remembered = [*gathered.proceed_statements(decision.run, decision.action), *more]
    reply = BeginResponse(decision.as_body(until))
    check_accepted(request, reply)
    yield from append.record_or_refuse(request.actor, events, lease, *remembered)
    return reply


def planned_event(request: BeginRequest, proceed: Proceed) -> StatementGenerator[ParsedEvent]:
    if not proceed.replaces:
        return request.planned
    of_action = [request.actor.workspace_id, proceed.run, proceed.action, EventType.ACTION_PLANNED]
    (earlier,) = yield [(EARLIER_PLANS, of_action)]
    return request.planned_as(proceed.action, [event_id for (event_id,) in earlier])


def is_on_record(context: BeginContext, decision: Denied) -> bool:
    """Whether the ledger has recorded this denial before."""
    if decision.code == BY_RULE:
        return context.denials_of_key > 0
    return context.denied == kept_code(context, decision)


def kept_code(context: BeginContext, decision: Denied) -> str:
    """What the key keeps of a denial: its code, behind that it was in doubt for a restore."""
    mark = f"{RESTORED} " if context.denied.startswith(RESTORED) else ""
    return f"{mark}{decision.code}"[:DENIED_CHARACTERS_MAX]


KEEP_DENIAL = """
INSERT INTO approvals_denial AS d (workspace_id, agent_id, key, run_ref, deed)
VALUES (%b, %b, %b, %b, %b::jsonb)
ON CONFLICT (agent_id, key, run_ref) DO UPDATE
SET times = d.times + 1, deed = excluded.deed, denied_at = clock_timestamp()"""
DENIED_BYTES_MAX = 16 * 1024
"""Of a larger call the arguments are left out: conditions that ask for them are then not met."""


def denial_statement(request: BeginRequest, context: BeginContext) -> Statement:
    """Keeps a call that a rule denied, to try other policies on it; the same key again in the same
    run is the same call.
    """
    call = asdict(request.tool_call(context.labels))
    call["targets"] = [dict(one) for one in request.targets]
    if len(canonical_of(call)) > DENIED_BYTES_MAX:
        call["args"] = call["before"] = None
    actor, run = request.actor, request.planned.run
    return KEEP_DENIAL, [actor.workspace_id, actor.agent_id or 0, request.key, run, json_text(call)]


def needs_a_look(context: BeginContext, decision: Denied) -> bool:
    """Whether this denial makes the run one that somebody has to look at."""
    now = context.denials_of_run + 1 if decision.code == BY_RULE else 0
    return now == memory.DENIED_OFTEN or (now > memory.DENIED_OFTEN and context.run is None)
