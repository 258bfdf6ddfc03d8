"""The slow path of `begin`: every call that the fast path leaves, in one transaction.

`slow_path_statements.look_and_decide` runs on the event loop and mostly ends with an answer. Where
people have to be asked, the desk itself has to record something, or the policy reads long texts, it
has written nothing but the key. Then a thread runs it again on Django's connection, and does the
rest, which is in this module.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from django.db import OperationalError, close_old_connections, connection, connections, transaction
from django.db.models import F, Q
from psycopg.errors import DeadlockDetected, SerializationFailure

from amends.protocol.vocabulary import EventType
from approvals import approval_requests, call_context, digests, grants, inventory, tallies
from approvals.gate import bounded_grants
from approvals.gate.begin_context import BeginContext, KnownAction, note_schema
from approvals.gate.begin_request import BeginRequest
from approvals.gate.decision_table import (
    BY_RULE,
    KEY_REUSED,
    ApprovalRequired,
    BeginResponse,
    ChangedReplay,
    Denied,
    InDoubt,
    KeyReused,
    LostInRestore,
    Proceed,
    UseGrant,
    decide,
    order_breach,
    wait_body,
)
from approvals.gate.explaining import explained
from approvals.gate.gathering import gather
from approvals.gate.slow_path_statements import (
    Decided,
    check_accepted,
    denial_statement,
    is_on_record,
    judged_as_asked,
    kept_code,
    look_and_decide,
    needs_a_look,
    planned_event,
    policy_in_force,
    read_context,
    record_start,
    renewals,
)
from approvals.models import RESTORED, Approval, ApprovalState, GateKey
from approvals.policy.decisions import asked_by_order
from edge import pools
from edge.asgi import Refused, problem
from ledger import desk_events, drivers, snapshots
from ledger.append import events as append
from ledger.append.events import AppendBatch
from ledger.drivers import StatementGenerator
from ledger.fold.runs import BY_A_RESTORE
from ledger.models import Action, Run, RunState
from ledger.parsed_events import Actor, ParsedEvent
from workspaces import locks
from workspaces.models import Agent, Workspace

THREADS_MAX = 8
WAITING_MAX = 2_000  # as for a connection of the fast path
TRIES_MAX = 3
AWAITED_MAX = 2
"""Awaited at once: they may wait for a run's lock, and usual begins need the connections."""
OPEN_PER_AGENT_MAX = 20
"""Questions of one agent that people have before them; those of runs that are over do not count."""
DIFFERENCES_MAX = 8
NO_ROOM = "too_many_open"
TOO_MANY_OPEN = (
    f"{OPEN_PER_AGENT_MAX} questions of this agent wait for people, and no more may: this one was"
    " not asked. Wait until some are answered, or end the runs that no longer need theirs; then ask"
    " again under the same key"
)

NOT_AS_APPROVED = problem(
    "not-as-approved",
    "The record of the approval was changed",
    409,
    "What was approved is no longer what is on record, so nobody is told to make the call with it.",
)

T = TypeVar("T")
_threads = pools.Threads("gate", threads_max=THREADS_MAX, waiting_max=WAITING_MAX)
_awaited = asyncio.Semaphore(AWAITED_MAX)


async def run_in_thread(function: Callable[..., T], *args: Any) -> T:
    """Run `function` in one of the gate's threads, with a connection of its own. Where PostgreSQL
    ended it because two had locked each other out, the next try finds the way free.
    """
    return await _threads.call(_with_database, function, args)


def _with_database(function: Callable[..., T], args: tuple[Any, ...]) -> T:
    close_old_connections()
    try:
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                with connection.wrap_database_errors:  # also of statements past Django's cursors
                    return function(*args)
            except OperationalError as failed:  # Django's, which nobody in front of it knows
                cause = failed.__cause__
                if not (tries_left and isinstance(cause, DeadlockDetected | SerializationFailure)):
                    raise (cause or failed) from failed
    finally:
        connections.close_all()
    raise AssertionError("unreachable")


async def begin_awaited(request: BeginRequest) -> BeginResponse:
    """Decide on this call by the table, carry the decision out and record it. Raises Refused; then
    nothing was written.

    A thread does what `look_and_decide` leaves, whatever comes while AWAITED_MAX are on the event
    loop, and the next try after a deadlock.
    """
    if not _awaited.locked():
        with suppress(DeadlockDetected, SerializationFailure):
            async with _awaited, pools.pool().connection() as connection:
                found = await drivers.commit_async(
                    look_and_decide(request, in_thread=False), connection
                )
            if isinstance(found, BeginResponse):
                return found
            if isinstance(found, Refused):
                raise found
    return await run_in_thread(begin, request)


@transaction.atomic
def begin(request: BeginRequest) -> BeginResponse:
    """The same in a thread, in a transaction on Django's connection."""
    reply = carry_out(request, run_statements(look_and_decide(request, in_thread=True)))
    if request.tool_schema is not None and not request.explain:
        shape = inventory.noting(request.actor.agent_id, request.tool, request.tool_schema)
        drivers.execute(drivers.plain_connection(), [shape])
        transaction.on_commit(lambda: note_schema(request))
    return reply


def carry_out(  # noqa: PLR0911 - one per kind of decision
    request: BeginRequest, found: BeginResponse | Decided | Refused | None
) -> BeginResponse:
    """Do what was decided, in the transaction in which it was."""
    match found:
        case BeginResponse():
            return found
        case Refused():
            raise found
        case Decided() if request.explain:
            return explained(request, found, _why_not)
        case Decided(decision=UseGrant() as use):
            return _use_grant(request, found, use)
        case Decided(decision=ChangedReplay() as again):
            return _replay_changed(request, found, again)
        case Decided(decision=ApprovalRequired() as required):
            return _draw_grant(request, found, required) or _ask_people(request, found, required)
        case Decided(decision=Denied() as denied):
            return _denied(request, found.context, denied)
        case Decided(decision=InDoubt() as doubt):
            return _in_doubt(request, doubt)
        case Decided(decision=KeyReused() as reused):
            return _key_reused(request, reused)
        case Decided(decision=LostInRestore() as lost):
            return _lost_in_restore(request, found, lost)
    raise AssertionError(f"decided, and not done: {found}")


def decided(request: BeginRequest) -> Decided:
    """What is decided, under the locks of the open transaction; nothing is begun before
    `carry_out`, which goes by the very same, whatever changes meanwhile.
    """
    context = run_statements(read_context(request, asks=not request.explain))
    policy = policy_in_force(request.actor.workspace_id, context.policy_digest)
    gathered = run_statements(gather(request, context, policy))
    decision, judgement = decide(request, context, policy, gathered.findings)
    return Decided(context, policy, gathered, judgement, decision)


def run_statements(found: StatementGenerator[T]) -> T:
    """Run the statements in the transaction that is open on Django's connection."""
    return drivers.run(found, drivers.plain_connection())


def record(actor: Actor, events: list[ParsedEvent]) -> None:
    """Record in the transaction that is open; raises `Refused` for the first that is not kept."""
    run_statements(append.record_or_refuse(actor, events))


def _use_grant(request: BeginRequest, found: Decided, decision: UseGrant) -> BeginResponse:
    """Use the grant if everything is still as it was approved; otherwise people are asked anew."""
    approval = (
        locks.locked(Approval.objects.all())
        .select_related("workspace", "action")
        .get(pk=decision.approval)
    )
    proceed = decision.proceed
    why = _why_not(request, found, approval)
    if why:
        approval_requests.void(approval, why=why)
        if approval.replaces_id is not None:
            return _ask_as_asked(request, found, ApprovalRequired(proceed, why))
        if found.judgement.approval != "AUTO":
            return _ask_people(request, found, ApprovalRequired(proceed, why))
    elif approval.state == ApprovalState.WAITING or grants.is_early(approval, found.context.now):
        drivers.execute(drivers.plain_connection(), renewals(request, found.context))
        return BeginResponse(wait_body(proceed.action, approval.pk, approval.expires_at))
    elif not grants.use(approval.pk, approval.digest, attempt=request.attempt):
        code, words = grants.why_unused(approval.pk, approval.digest, now=found.context.now)
        return _denied(request, found.context, Denied(code, words))
    else:
        changed = approval.calls[0]["args"] if approval.replaces_id is not None else None
        proceed = replace(proceed, arguments=changed, approval=approval.pk)
    return run_statements(record_start(request, found.context, proceed, found.gathered))


def _ask_as_asked(
    request: BeginRequest, found: Decided, decision: ApprovalRequired
) -> BeginResponse:
    """Ask people about what the agent asks for, since what an approver had made of it is void."""
    anew = run_statements(judged_as_asked(request, found))
    if anew.judgement.approval == "DENY":
        return _denied(request, anew.context, Denied(BY_RULE, anew.judgement.why))
    drivers.execute(drivers.plain_connection(), [tallies.let_go(anew.gathered.caller)])
    return _ask_people(request, anew, decision)


def _replay_changed(
    request: BeginRequest, found: Decided, decision: ChangedReplay
) -> BeginResponse:
    """The answer was lost: the same again, if what was approved stands as it stood."""
    approval = Approval.objects.select_related("workspace", "action").get(pk=decision.approval)
    if digests.digest_with(approval, [_facts(request, found, approval)]) != approval.digest:
        raise Refused(NOT_AS_APPROVED)
    if grants.unsigned(approval, wanted=found.judgement.signed):
        raise Refused(NOT_AS_APPROVED)
    reply = BeginResponse(decision.body)
    check_accepted(request, reply)
    drivers.execute(drivers.plain_connection(), renewals(request, found.context))
    return reply


def _facts(request: BeginRequest, found: Decided, approval: Approval) -> digests.CallFacts:
    """The call as the approval has to bind it: as it is asked for, or as somebody changed that."""
    asked = request.facts(found.context.on_behalf_of)
    is_changed = approval.replaces_id is not None
    return digests.changed(asked, approval.calls[0].get("args")) if is_changed else asked


def _why_not(  # noqa: PLR0911 - each reason ends it
    request: BeginRequest, found: Decided, approval: Approval
) -> str:
    """What keeps the grant from being used, in words; empty if nothing does."""
    judgement = found.judgement
    if judgement.approval == "AUTO" and approval.state == ApprovalState.WAITING:
        return "the policy no longer asks for this"
    facts = _facts(request, found, approval)
    if digests.digest_with(approval, [facts]) != approval.digest:
        changed = [change for call in grants.differences(approval, [facts]) for change in call]
        if not changed:
            return "not what was approved: the record of the approval was changed"
        words = digests.fields_in_words(changed, DIFFERENCES_MAX)
        verb = "is" if len(changed) == 1 else "are"
        return f"not what was approved: {words} {verb} not the same"
    if judgement.approval == "AUTO" or approval.state == ApprovalState.WAITING:
        return ""
    if not grants.is_recorded(approval):
        return "the ledger does not tell that people approved it"
    if why := grants.unsigned(approval, wanted=judgement.signed):
        return f"its signatures do not stand: {why}"
    if not grants.suffices(approval, judgement):
        asked = grants.asked_by(approval, judgement)
        words = digests.in_words(digests.differences(asked, judgement), DIFFERENCES_MAX)
        return f"the policy has become stricter since: {words}"
    if judgement.is_asked_by_order and not asked_by_order(approval.rules):
        return "the pivot of its run has passed since"
    if not grants.still_entitled(approval):
        return "somebody who approved may no longer do so"
    return ""


def _draw_grant(
    request: BeginRequest, found: Decided, decision: ApprovalRequired
) -> BeginResponse | None:
    """Proceed under a bounded grant, if one covers the call; never where the ordering law asks."""
    context, proceed = found.context, decision.proceed
    if not request.may_draw or order_breach(request, context, found.policy, found.judgement):
        return None
    grant = bounded_grants.draw(request, found.judgement, proceed)
    if grant is None:
        return None
    proceed = replace(proceed, approval=grant)
    reply = run_statements(record_start(request, context, proceed, found.gathered))
    bounded_grants.tell(request, proceed)
    return reply


def _ask_people(request: BeginRequest, found: Decided, decision: ApprovalRequired) -> BeginResponse:
    action = _planned_action(request, decision.proceed)
    if action is None:
        return BeginResponse({"answer": "denied", "code": NO_ROOM, "reason": TOO_MANY_OPEN})
    try:
        shown, money = call_context.preview(
            found.policy, tool=request.tool, args=request.data.get("args"), targets=request.targets,
            before=snapshots.looked_up(request.actor.workspace_id, request.data.get("before")),
        )  # fmt: skip
    except call_context.TooLargeToShow as large:
        return _denied(request, found.context, Denied("too_large_to_show", str(large)))
    try:
        approval = approval_requests.ask_for_action(
            action,
            subject_key=request.subject_key,
            facts=request.facts(found.context.on_behalf_of),
            judgement=found.judgement,
            preview=shown,
            agent_text=request.data.get("intent"),
            amount=money,
            note=decision.note,
            accepts_changed_arguments=request.accepts_changed_arguments,
            expires_seconds=found.policy.action_expires_seconds,
        )
    except approval_requests.NobodyToAsk as nobody:
        return _denied(request, found.context, Denied("nobody_to_ask", str(nobody)))
    asking = found.gathered.ask_statements(request.planned.run, action.action)
    if asking:
        drivers.execute(drivers.plain_connection(), asking)
    return BeginResponse(wait_body(action.action, approval.pk, approval.expires_at))


def _planned_action(request: BeginRequest, proceed: Proceed) -> Action | None:
    """The action in the ledger, planned now if it was not; None where too many questions are open.

    The run is locked before the agent, also where this call is the first that is said of it.
    """
    batch = None
    if not proceed.is_planned:
        batch = AppendBatch(request.actor, [run_statements(planned_event(request, proceed))])
        run_statements(batch.lock_runs())
    if _open_questions(request) >= OPEN_PER_AGENT_MAX:
        if batch is not None:
            run_statements(batch.discard())
        return None
    if batch is not None:
        run_statements(batch.insert_or_refuse())
    return Action.objects.select_related("run", "agent__owner", "workspace").get(
        workspace_id=request.actor.workspace_id, run__run=proceed.run, action=proceed.action
    )


def _open_questions(request: BeginRequest) -> int:
    """How many wait for people, counted under the agent's lock: two that ask at once are two."""
    agent = Agent.objects.filter(pk=request.actor.agent_id or 0)
    list(locks.locked(agent).values("pk"))
    waits = Approval.objects.open().filter(
        Q(action__run__held_by="") | Q(action__run__held_by__startswith=BY_A_RESTORE),
        workspace=request.actor.workspace_id,
        agent_id=request.actor.agent_id or 0,
        action__run__state=RunState.RUNNING,
    )
    return waits.count()


def _denied(request: BeginRequest, context: BeginContext, decision: Denied) -> BeginResponse:
    """Say no, and tell the ledger once per reason; the action itself is not begun."""
    if decision.code == BY_RULE:
        drivers.execute(drivers.plain_connection(), [denial_statement(request, context)])
    if needs_a_look(context, decision):
        _show_to_triage(request, context)
    if not is_on_record(context, decision):
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
        keys.update(denied=kept_code(context, decision))
    return BeginResponse(decision.as_body())


def _show_to_triage(request: BeginRequest, context: BeginContext) -> None:
    """Let triage look at the run; a run that is not in the ledger yet is opened."""
    if context.run is not None:
        Run.objects.filter(pk=context.run.id).update(revision=F("revision") + 1)
    else:
        record(request.actor, [request.opened()])


def _in_doubt(request: BeginRequest, decision: InDoubt) -> BeginResponse:
    known = decision.known
    if decision.is_new:
        error = {"type": "LeaseOver", "message": "the try ended without an outcome in its time"}
        _record_doubt(request, known, known.attempt, error)
    return BeginResponse(decision.as_body())


def _lost_in_restore(
    request: BeginRequest, found: Decided, decision: LostInRestore
) -> BeginResponse:
    """Record the try as one of unknown outcome: a case opens, in which people settle it."""
    context, proceed = found.context, decision.proceed
    run_statements(record_start(request, context, proceed, found.gathered))
    held = context.run.held_by if context.run else ""
    words = f"{held}: whether the call was made after the backup was taken is not known"
    error = {"type": "Restored", "message": words}
    _record_doubt(request, proceed, request.attempt, error)
    keys = GateKey.objects.filter(agent_id=request.actor.agent_id or 0, key=request.key)
    keys.update(denied=RESTORED)
    return BeginResponse(decision.as_body())


def _record_doubt(
    request: BeginRequest, call: KnownAction | Proceed, attempt: str, error: dict[str, str]
) -> None:
    """Record a try of the call as one of unknown outcome."""
    data: dict[str, Any] = {"attempt": attempt, "outcome": "unknown", "error": error}
    if call.fence:
        data["fence"] = call.fence
    desk_events.record(
        _workspace(request),
        EventType.ACTION_FAILED,
        run=call.run,
        action=call.action,
        part="gate",
        data=data,
    )


def _key_reused(request: BeginRequest, decision: KeyReused) -> BeginResponse:
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
    return BeginResponse(KEY_REUSED)


def _workspace(request: BeginRequest) -> Workspace:
    return Workspace.objects.get(pk=request.actor.workspace_id)
