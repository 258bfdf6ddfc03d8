"""The slow path of `begin`: look under the locks, decide by the table, record, and ask people.

It runs in a thread, on Django's connection, in one transaction. The key's lock comes first, then
the run's; what is read after them is as it stands after the wait, so that nothing that changed in
between is missed.
"""

from collections.abc import Callable, Generator
from datetime import timedelta
from typing import Any, TypeVar

from django.db import OperationalError, close_old_connections, connections, transaction
from django.db.models import F
from psycopg.errors import DeadlockDetected, SerializationFailure

from amends.protocol.vocabulary import EventType
from approvals import approval_requests, call_previews, denials, digests, grants, tool_shapes
from approvals.gate import snapshot_cache
from approvals.gate.begin_context import BeginContext, context_of, reads
from approvals.gate.begin_request import BeginRequest
from approvals.gate.decision_table import (
    BY_RULE,
    KEY_REUSED,
    RESTORED,
    Answer,
    Decision,
    Denied,
    Forgotten,
    InDoubt,
    KeyReused,
    Proceed,
    Question,
    Reply,
    Use,
    decide,
    explained,
    waiting,
)
from approvals.gate.gathering import Gathered, gather
from approvals.models import Approval, ApprovalState, GateKey
from approvals.policy import Policy, PolicyDecision, Unreadable, active_policies
from edge import pools
from edge.asgi import Refused, problem, refuse
from ledger import desk_events, drivers
from ledger.append import events as append
from ledger.append.events import Batch, Recorded
from ledger.append.statements import Rows, Statement
from ledger.models import Action, Event, Run, RunState
from ledger.parsed_events import Actor, ParsedEvent
from workspaces import locks
from workspaces.models import Agent, Workspace

THREADS_MAX = 8
WAITING_MAX = 2_000  # as for a connection of the fast path
TRIES_MAX = 3
OPEN_PER_AGENT_MAX = 20
"""Questions of one agent that people have before them; those of runs that are over do not count."""
DIFFERENCES_MAX = 8
DETAIL_CHARACTERS_MAX = 500
TOO_MANY_OPEN = (
    f"{OPEN_PER_AGENT_MAX} questions of this agent wait for people, and no more may: this one was"
    " not asked. Wait until some are answered, or end the runs that no longer need theirs; then ask"
    " again under the same key"
)

T = TypeVar("T")
_threads = pools.Threads("gate", threads_max=THREADS_MAX, waiting_max=WAITING_MAX)


async def call(function: Callable[..., T], *args: Any) -> T:
    """Run `function` in one of the gate's threads, with a connection of its own. Where PostgreSQL
    ended it because two had locked each other out, the next try finds the way free.
    """
    return await _threads.call(_with_database, function, args)


def _with_database(function: Callable[..., T], args: tuple[Any, ...]) -> T:
    close_old_connections()
    try:
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                return function(*args)
            except (DeadlockDetected, SerializationFailure):
                if not tries_left:
                    raise
            except OperationalError as failed:  # Django's, which nobody in front of it knows
                cause = failed.__cause__
                if not (tries_left and isinstance(cause, DeadlockDetected | SerializationFailure)):
                    raise (cause or failed) from failed
    finally:
        connections.close_all()
    raise AssertionError("unreachable")


def policy_in_force(workspace_id: int, digest: str | None) -> Policy:
    """The compiled policy of a workspace. Where it cannot be read the desk is not away, it says no:
    an agent must not go on by an older policy of its own.
    """
    try:
        return active_policies.known(digest) or active_policies.active(workspace_id)
    except Unreadable as wrong:
        title = "The policy in force cannot be read"
        detail = f"{title}, so no call may be made until a person mends it: {wrong}"
        raise refuse("policy-unreadable", title, 422, detail[:DETAIL_CHARACTERS_MAX]) from wrong


@transaction.atomic
def begin(request: BeginRequest) -> Reply:
    """What the table says of this call, done and recorded. Raises Refused; then nothing is."""
    reply = _decided(request)
    check_accepted(request, reply)
    if request.tool_schema is not None and not request.explain:
        shape = tool_shapes.noting(request.actor.agent_id, request.tool, request.tool_schema)
        drivers.execute(desk_events.plain_connection(), [shape])
        transaction.on_commit(lambda: snapshot_cache.note_shape(request))
    return reply


NOT_ACCEPTED = problem(
    "changed-arguments",
    "An approver changed the arguments, and this client takes none but its own",
    422,
    "The call was approved with other arguments than are asked for. Make it with a client that says"
    " “accepts_changed_arguments”, or end this run.",
)


def check_accepted(request: BeginRequest, reply: Reply) -> None:
    """Nobody hears arguments that an approver changed who has not said that they take such: they
    would make the call with their own.
    """
    has_changed = isinstance(reply.body, dict) and "arguments" in reply.body
    if has_changed and not request.accepts_changed_arguments:
        raise Refused(NOT_ACCEPTED)


def _decided(request: BeginRequest) -> Reply:  # noqa: PLR0911 - one per kind of decision
    context = drivers.run(_look(request), desk_events.plain_connection())
    policy = policy_in_force(request.actor.workspace_id, context.policy_digest)
    snapshot_cache.note(request, context)
    gathered = gather(request, context, policy)
    decision, judgement = decide(request, context, policy, gathered.findings)
    if request.explain:
        return explained(request, context, decision, judgement)
    match decision:
        case Answer():
            if decision.renews:
                _renew(request, context)
            return Reply(decision.body)
        case Proceed():
            return _proceed(request, context, decision, gathered)
        case Use():
            return _use(request, context, policy, judgement, decision, gathered)
        case Question():
            return _question(request, context, policy, judgement, decision, gathered)
        case Denied():
            return _denied(request, context, decision)
        case InDoubt():
            return _in_doubt(request, decision)
        case KeyReused():
            return _key_reused(request, decision)
        case Forgotten():
            return _forgotten(request, context, decision, gathered)


def looked(request: BeginRequest) -> tuple[Decision, PolicyDecision]:
    """What would be answered, under the locks of the transaction that is open; begins nothing."""
    context = drivers.run(_look(request), desk_events.plain_connection())
    policy = policy_in_force(request.actor.workspace_id, context.policy_digest)
    return decide(request, context, policy, gather(request, context, policy).findings)


# Whoever waits for a key or a run for longer is told to come back.
LOCK_TIMEOUT: Statement = ("SET LOCAL lock_timeout = '5s'", ())


def _look(request: BeginRequest) -> Generator[list[Statement], list[Rows], BeginContext]:
    _, *rows = yield [LOCK_TIMEOUT, *reads(request)]
    return context_of(rows)


# The key's lease, and the run's, from now on for as long as the policy gives a try.

RENEW_KEY = """
UPDATE approvals_gatekey SET attempt = %b, lease_until = %b,
    denied = CASE WHEN denied = 'restored' THEN denied ELSE '' END
WHERE agent_id = %b AND key = %b"""
RENEW_LEASE = """
UPDATE approvals_gatekey SET lease_until = %b WHERE agent_id = %b AND key = %b AND attempt = %b"""
RENEW_RUN = """
UPDATE ledger_run SET lease_until = greatest(lease_until, %b) WHERE id = %b AND held_by = ''"""
# Another client may have come to wait for it, after a restart.
NOTE_CLIENT = """
UPDATE approvals_approval SET accepts_changed_arguments = %b
WHERE id = %b AND state = 'waiting' AND accepts_changed_arguments <> %b"""


def _renew(request: BeginRequest, context: BeginContext) -> None:
    until = context.now + timedelta(seconds=request.actor.stuck_after_seconds)
    lease = [until, request.actor.agent_id, request.key, request.attempt]
    renewals: list[Statement] = [(RENEW_LEASE, lease)]
    if context.run is not None:
        renewals.append((RENEW_RUN, [until, context.run.id]))
    if context.approval is not None:
        accepts = request.accepts_changed_arguments
        renewals.append((NOTE_CLIENT, [accepts, context.approval.id, accepts]))
    drivers.execute(desk_events.plain_connection(), renewals)


def _proceed(
    request: BeginRequest, context: BeginContext, decision: Proceed, gathered: Gathered
) -> Reply:
    events = [] if decision.is_planned else [_plan(request, decision)]
    events.append(request.started(decision.run, decision.action, decision.fence))
    until = context.now + timedelta(seconds=request.actor.stuck_after_seconds)
    lease = (RENEW_KEY, [request.attempt, until, request.actor.agent_id, request.key])
    remembered = gathered.proceeding(decision.run, decision.action)
    record(request.actor, events, lease, *remembered)
    return Reply(decision.as_body(until))


def _plan(request: BeginRequest, proceed: Proceed) -> ParsedEvent:
    if not proceed.replaces:
        return request.planned
    earlier = Event.objects.filter(
        workspace_id=request.actor.workspace_id,
        run=proceed.run,
        action=proceed.action,
        type=EventType.ACTION_PLANNED,
    )
    return request.planned_as(proceed.action, list(earlier.values_list("event_id", flat=True)))


def record(actor: Actor, events: list[ParsedEvent], *more: Statement) -> None:
    """Record in the transaction that is open; raises `Refused` for the first that is not kept."""
    _check(drivers.run(append.record(actor, events, *more), desk_events.plain_connection()))


def _check(recorded: Recorded) -> None:
    """Raise Refused, and so take everything back, where the ledger does not keep an event."""
    for one in recorded.answers:
        if one.problem is not None:
            raise Refused(one.problem)


def _use(
    request: BeginRequest,
    context: BeginContext,
    policy: Policy,
    judgement: PolicyDecision,
    decision: Use,
    gathered: Gathered,
) -> Reply:
    """Use the grant if everything is still as it was approved; otherwise people are asked anew."""
    approval = (
        locks.locked(Approval.objects.all())
        .select_related("workspace", "action")
        .get(pk=decision.approval)
    )
    why = _why_not(request, context, approval, judgement)
    if why:
        approval_requests.void(approval, why=why)
        if judgement.approval == "AUTO":
            return _proceed(request, context, decision.proceed, gathered)
        return _question(
            request, context, policy, judgement, Question(decision.proceed, why), gathered
        )
    if approval.state == ApprovalState.WAITING:
        _renew(request, context)
        return Reply(waiting(decision.proceed.action, approval.pk, approval.expires_at))
    if not grants.use(approval.pk, approval.digest):
        return _denied(request, context, Denied("expired", "the grant was not used in time"))
    return _proceed(request, context, decision.proceed, gathered)


def _why_not(  # noqa: PLR0911 - each reason ends it
    request: BeginRequest, context: BeginContext, approval: Approval, judgement: PolicyDecision
) -> str:
    """What keeps the grant from being used, in words; empty if nothing does."""
    if judgement.approval == "AUTO" and approval.state == ApprovalState.WAITING:
        return "the policy no longer asks for this"
    if approval_requests.is_of_old_form(approval):
        return approval_requests.ASKED_BEFORE
    facts = request.facts(_person(context))
    if grants.digest_with(approval, [facts]) != approval.digest:
        changed = [change for call in grants.differences(approval, [facts]) for change in call]
        words = digests.in_words(changed, DIFFERENCES_MAX)
        return f"not what was approved: {words or 'the record of the approval was changed'}"
    if judgement.approval == "AUTO" or approval.state == ApprovalState.WAITING:
        return ""
    if not grants.suffices(approval, judgement):
        asked = grants.asked_by(approval, judgement)
        words = digests.in_words(digests.differences(asked, judgement), DIFFERENCES_MAX)
        return f"the policy has become stricter since: {words}"
    if not grants.still_entitled(approval):
        return "somebody who approved may no longer do so"
    return ""


def _question(
    request: BeginRequest,
    context: BeginContext,
    policy: Policy,
    judgement: PolicyDecision,
    decision: Question,
    gathered: Gathered,
) -> Reply:
    action = _planned(request, decision.proceed)
    if action is None:
        return Reply({"answer": "denied", "code": "too_many_open", "reason": TOO_MANY_OPEN})
    try:
        shown, money = call_previews.preview(
            policy, tool=request.tool, args=request.data.get("args"), targets=request.targets,
            before=request.data.get("before"),
        )  # fmt: skip
    except call_previews.TooLargeToShow as large:
        return _denied(request, context, Denied("too_large_to_show", str(large)))
    try:
        approval = approval_requests.ask_for_action(
            action,
            subject_key=request.subject_key,
            facts=request.facts(_person(context)),
            judgement=judgement,
            preview=shown,
            agent_text=request.data.get("intent"),
            amount=money,
            note=decision.note,
            accepts_changed_arguments=request.accepts_changed_arguments,
            expires_seconds=policy.action_expires_seconds,
        )
    except approval_requests.NobodyToAsk as nobody:
        return _denied(request, context, Denied("nobody_to_ask", str(nobody)))
    asking = gathered.asking(request.planned.run, action.action)
    if asking:
        drivers.execute(desk_events.plain_connection(), asking)
    return Reply(waiting(action.action, approval.pk, approval.expires_at))


def _planned(request: BeginRequest, proceed: Proceed) -> Action | None:
    """The action in the ledger, planned now if it was not; None where too many questions are open.

    The run is locked before the agent, also where this call is the first that is said of it.
    """
    plain = desk_events.plain_connection()
    batch = None if proceed.is_planned else Batch(request.actor, [_plan(request, proceed)])
    if batch is not None:
        drivers.run(batch.meet_runs(), plain)
    if _open_questions(request) >= OPEN_PER_AGENT_MAX:
        if batch is not None:
            drivers.run(batch.leave(), plain)
        return None
    if batch is not None:
        _check(drivers.run(batch.keep(), plain))
    return Action.objects.select_related("run", "agent__owner", "workspace").get(
        workspace_id=request.actor.workspace_id, run__run=proceed.run, action=proceed.action
    )


def _open_questions(request: BeginRequest) -> int:
    """How many wait for people, counted under the agent's lock: two that ask at once are two."""
    agent = Agent.objects.filter(pk=request.actor.agent_id or 0)
    list(locks.locked(agent).values("pk"))
    waits = Approval.objects.open().filter(
        workspace=request.actor.workspace_id,
        agent_id=request.actor.agent_id or 0,
        action__run__state=RunState.RUNNING,
        action__run__held_by="",
    )
    return waits.count()


def _person(context: BeginContext) -> Any:
    return context.run.on_behalf_of if context.run else None


def _denied(request: BeginRequest, context: BeginContext, decision: Denied) -> Reply:
    """Say no, and tell the ledger once per reason; the action itself is not begun."""
    by_rule = decision.code == BY_RULE
    if by_rule:
        _remember(request, context)
        if _is_often(context):
            _show(request, context)
    if not context.denials_of_key if by_rule else context.denied != decision.code:
        desk_events.record(
            _workspace(request),
            EventType.APPROVAL_DENIED,
            run=request.planned.run,
            part="gate",
            data={
                "code": decision.code,
                "reason": decision.reason,
                "tool": request.tool,
                "agent": request.actor.name,
                "key": request.key,
                "call": request.args_digest,
            },
        )
        keys = GateKey.objects.filter(agent_id=request.actor.agent_id or 0, key=request.key)
        keys.update(denied=decision.code)
    return Reply(decision.as_body())


def _remember(request: BeginRequest, context: BeginContext) -> None:
    """Keep what a rule denied: a laxer policy is tried on it."""
    labels = context.run.labels if context.run else {}
    denials.keep(
        request.actor.workspace_id,
        request.actor.agent_id or 0,
        key=request.key,
        run=request.planned.run,
        deed=request.tool_call(labels),
    )


def _is_often(context: BeginContext) -> bool:
    """Whether this denial makes the run one that somebody has to look at."""
    now = context.denials_of_run + 1
    return now == denials.OFTEN or (now > denials.OFTEN and context.run is None)


def _show(request: BeginRequest, context: BeginContext) -> None:
    """Let triage look at the run; one that the ledger did not know of begins with this."""
    if context.run is not None:
        Run.objects.filter(pk=context.run.id).update(revision=F("revision") + 1)
    else:
        record(request.actor, [request.opened()])


def _in_doubt(request: BeginRequest, decision: InDoubt) -> Reply:
    known = decision.known
    if decision.is_new:
        error = {"type": "LeaseOver", "message": "the try ended without an outcome in its time"}
        data: dict[str, Any] = {"attempt": known.attempt, "outcome": "unknown", "error": error}
        if known.fence:
            data["fence"] = known.fence
        desk_events.record(
            _workspace(request),
            EventType.ACTION_FAILED,
            run=known.run,
            action=known.action,
            part="gate",
            data=data,
        )
    return Reply(decision.as_body())


def _forgotten(
    request: BeginRequest, context: BeginContext, decision: Forgotten, gathered: Gathered
) -> Reply:
    """Record the try as one of which nobody knows what became: a case opens, and people say it."""
    proceed = decision.proceed
    _proceed(request, context, proceed, gathered)
    error = {"type": "Restored", "message": f"{context.run and context.run.held_by}: whether the"
             " call was made after the backup was taken is not known"}  # fmt: skip
    desk_events.record(
        _workspace(request),
        EventType.ACTION_FAILED,
        run=proceed.run,
        action=proceed.action,
        part="gate",
        data={
            "attempt": request.attempt,
            "fence": proceed.fence,
            "outcome": "unknown",
            "error": error,
        },
    )
    keys = GateKey.objects.filter(agent_id=request.actor.agent_id or 0, key=request.key)
    keys.update(denied=RESTORED)
    return Reply(decision.as_body())


def _key_reused(request: BeginRequest, decision: KeyReused) -> Reply:
    known = decision.known
    if "key_reused" not in known.flags:
        desk_events.record(
            _workspace(request),
            EventType.ACTION_REFUSED,
            run=known.run,
            action=known.action,
            part="gate",
            data={"flag": "key_reused", "attempt": request.attempt, "call": request.args_digest},
        )
    return Reply(KEY_REUSED)


def _workspace(request: BeginRequest) -> Workspace:
    return Workspace.objects.get(pk=request.actor.workspace_id)
