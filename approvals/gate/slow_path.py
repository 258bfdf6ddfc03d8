"""The slow path of `begin`: where people are needed, or the desk itself has something to say.

It runs in a thread, on Django's connection, in one transaction under the same locks as the fast
path, and decides by the same table, so that nothing that changed in between is missed.
"""

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

from django.db import OperationalError, close_old_connections, connections, transaction
from django.db.models import F
from psycopg.errors import DeadlockDetected

from amends.protocol.vocabulary import EventType
from approvals import approval_requests, call_previews, denials, digests, grants
from approvals.gate.begin_context import BeginContext, found_in, reads
from approvals.gate.begin_request import BeginRequest
from approvals.gate.decision_table import (
    BY_RULE,
    Answer,
    Decision,
    Denied,
    InDoubt,
    KeyReused,
    Proceed,
    Question,
    Use,
    decide,
    waiting,
)
from approvals.gate.responses import KEY_REUSED, Reply, of_proceed
from approvals.models import Approval, ApprovalState, GateKey, PolicyVersion
from approvals.policy import Policy, PolicyDecision, active_policies
from edge.asgi import refuse
from ledger import desk_events, drivers, intake
from ledger.append.events import Batch, Recorded
from ledger.append.statements import Statement
from ledger.drivers import Rows
from ledger.models import Action, Event, Run, RunState
from ledger.parsed_events import Actor, ParsedEvent
from workspaces import row_locks
from workspaces.models import Agent, Workspace

THREADS_MAX = 8  # asking people is rare beside proceeding
TRIES_MAX = 3
OPEN_PER_AGENT_MAX = 20
"""Questions of one agent that people have before them; those of runs that are over do not count."""
DIFFERENCES_MAX = 8
TOO_MANY_OPEN = (
    f"{OPEN_PER_AGENT_MAX} questions of this agent wait for people, and no more may: this one was"
    " not asked. Wait until some are answered, or end the runs that no longer need theirs; then ask"
    " again under the same key"
)

T = TypeVar("T")
_threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="gate")


async def call(function: Callable[..., T], *args: Any) -> T:
    """Run `function` in one of the gate's threads, with a connection of its own."""
    return await asyncio.get_running_loop().run_in_executor(
        _threads, _with_database, function, args
    )


def _with_database(function: Callable[..., T], args: tuple[Any, ...]) -> T:
    close_old_connections()
    try:
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                return function(*args)
            except OperationalError as failed:
                if not (tries_left and isinstance(failed.__cause__, DeadlockDetected)):
                    raise
    finally:
        connections.close_all()
    raise AssertionError("unreachable")


def compile_policy(workspace_id: int, digest: str) -> None:
    """Have the active policy of a workspace ready in this process."""
    _with_database(_compile_policy, (workspace_id, digest))


def _compile_policy(workspace_id: int, digest: str) -> None:
    versions = PolicyVersion.objects.filter(workspace_id=workspace_id, digest=digest)
    document = versions.values_list("document", flat=True).first()
    if document is not None:
        active_policies.keep(digest, document)


@transaction.atomic
def begin(ask: BeginRequest) -> Reply:  # noqa: PLR0911 - one per kind of decision
    """Look again under the locks, decide by the table, and do what the quick way could not."""
    found = drivers.run(_look(ask), desk_events.plain_connection())
    policy = active_policies.active(ask.speaker.workspace_id)
    decision, judgement = decide(ask, found, policy)
    match decision:
        case Use():
            return _use(ask, found, policy, judgement, decision)
        case Question():
            return _question(ask, found, policy, judgement, decision)
        case Proceed():
            return _proceed(ask, found, decision)
        case Denied():
            if decision.code == BY_RULE:
                _remember(ask, found)
            return _denied(ask, found, decision)
        case InDoubt():
            return _in_doubt(ask, decision)
        case KeyReused():
            return _key_reused(ask, decision)
        case Answer():
            return Reply(decision.body)


def looked(ask: BeginRequest) -> tuple[Decision, PolicyDecision]:
    """What would be answered, under the locks of the transaction that is open; begins nothing."""
    found = drivers.run(_look(ask), desk_events.plain_connection())
    return decide(ask, found, active_policies.active(ask.speaker.workspace_id))


def _look(ask: BeginRequest) -> Generator[list[Statement], list[Rows], BeginContext]:
    return found_in((yield reads(ask)))


def _use(
    ask: BeginRequest, found: BeginContext, policy: Policy, judgement: PolicyDecision, decision: Use
) -> Reply:
    """Use the grant if everything is still as it was approved; otherwise people are asked anew."""
    approval = (
        row_locks.locked(Approval.objects.all())
        .select_related("workspace", "action")
        .get(pk=decision.approval)
    )
    why = _why_not(ask, found, approval, judgement)
    if why:
        approval_requests.void(approval, why=why)
        if judgement.approval == "AUTO":
            return _proceed(ask, found, decision.proceed)
        return _question(ask, found, policy, judgement, Question(decision.proceed, why))
    if not grants.use(approval.pk, approval.digest):
        return _denied(ask, found, Denied("expired", "the grant was not used in time"))
    return _proceed(ask, found, decision.proceed)


def _why_not(  # noqa: PLR0911 - each reason ends it
    ask: BeginRequest, found: BeginContext, approval: Approval, judgement: PolicyDecision
) -> str:
    """What keeps the grant from being used, in words; empty if nothing does."""
    if judgement.approval == "AUTO" and approval.state == ApprovalState.WAITING:
        return "the policy no longer asks for this"
    if approval_requests.is_of_old_form(approval):
        return approval_requests.ASKED_BEFORE
    facts = ask.facts(_person(found))
    if grants.digest_with(approval, [facts]) != approval.digest:
        changed = [change for call in grants.differences(approval, [facts]) for change in call]
        told = digests.in_words(changed, DIFFERENCES_MAX)
        return f"not what was approved: {told or 'the record of the approval was changed'}"
    if judgement.approval == "AUTO":
        return ""
    if not grants.suffices(approval, judgement):
        asked = grants.asked_by(approval, judgement)
        told = digests.in_words(digests.differences(asked, judgement), DIFFERENCES_MAX)
        return f"the policy has become stricter since: {told}"
    if not grants.still_entitled(approval):
        return "somebody who approved may no longer do so"
    return ""


def _question(
    ask: BeginRequest,
    found: BeginContext,
    policy: Policy,
    judgement: PolicyDecision,
    decision: Question,
) -> Reply:
    action = _planned(ask, decision.proceed)
    if action is None:
        return Reply({"answer": "denied", "code": "too_many_open", "reason": TOO_MANY_OPEN})
    try:
        shown, money = call_previews.preview(
            policy, tool=ask.tool, args=ask.data.get("args"), targets=ask.targets,
            before=ask.data.get("before"),
        )  # fmt: skip
    except call_previews.TooLargeToShow as large:
        return _denied(ask, found, Denied("too_large_to_show", str(large)))
    try:
        approval = approval_requests.ask_for_action(
            action,
            subject_key=ask.subject_key,
            facts=ask.facts(_person(found)),
            judgement=judgement,
            preview=shown,
            agent_text=ask.data.get("intent"),
            amount=money,
            note=decision.note,
            expires_seconds=policy.action_expires_seconds,
        )
    except approval_requests.NobodyToAsk as nobody:
        return _denied(ask, found, Denied("nobody_to_ask", str(nobody)))
    return Reply(waiting(action.action, approval.pk, approval.expires_at))


def _open_questions(ask: BeginRequest) -> int:
    """How many wait for people, counted under the agent's lock: two that ask at once are two."""
    agent = Agent.objects.filter(pk=ask.speaker.agent_id or 0)
    list(row_locks.locked(agent).values("pk"))
    waits = Approval.objects.open().filter(
        workspace=ask.speaker.workspace_id,
        agent_id=ask.speaker.agent_id or 0,
        action__run__state=RunState.RUNNING,
        action__run__held_by="",
    )
    return waits.count()


def _person(found: BeginContext) -> Any:
    return found.run.on_behalf_of if found.run else None


def _planned(ask: BeginRequest, proceed: Proceed) -> Action | None:
    """The action in the ledger, planned now if it was not; None where too many questions are open.

    The run is locked before the agent, also where this call is the first that is said of it.
    """
    plain = desk_events.plain_connection()
    batch = None if proceed.is_planned else Batch(ask.speaker, [_plan(ask, proceed)])
    if batch is not None:
        drivers.run(batch.meet_runs(), plain)
    if _open_questions(ask) >= OPEN_PER_AGENT_MAX:
        if batch is not None:
            drivers.run(batch.leave(), plain)
        return None
    if batch is not None:
        _check(drivers.run(batch.keep(), plain))
    return Action.objects.select_related("run", "agent__owner", "workspace").get(
        workspace_id=ask.speaker.workspace_id, run__run=proceed.run, action=proceed.action
    )


def _plan(ask: BeginRequest, proceed: Proceed) -> ParsedEvent:
    if not proceed.replaces:
        return ask.planned
    earlier = Event.objects.filter(
        workspace_id=ask.speaker.workspace_id,
        run=proceed.run,
        action=proceed.action,
        type=EventType.ACTION_PLANNED,
    )
    return ask.planned_as(proceed.action, list(earlier.values_list("event_id", flat=True)))


def _proceed(ask: BeginRequest, found: BeginContext, decision: Proceed) -> Reply:
    events = [] if decision.is_planned else [_plan(ask, decision)]
    _record(ask, [*events, ask.started(decision.run, decision.action, decision.fence)])
    until = found.now + timedelta(seconds=ask.speaker.stuck_after_seconds)
    _key(ask).update(attempt=ask.attempt, lease_until=until, denied="")
    return Reply(of_proceed(decision, until))


def _denied(ask: BeginRequest, found: BeginContext, decision: Denied) -> Reply:
    """Say no, and tell the ledger once per reason; the action itself is not begun."""
    by_rule = decision.code == BY_RULE
    if by_rule and is_often(found):
        _show(ask, found)
    if not found.denials_of_key if by_rule else found.denied != decision.code:
        desk_events.say(
            _workspace(ask),
            EventType.APPROVAL_DENIED,
            run=ask.planned.run,
            part="gate",
            data={
                "code": decision.code,
                "reason": decision.reason,
                "tool": ask.tool,
                "agent": ask.speaker.name,
                "key": ask.key,
                "call": ask.args_digest,
            },
        )
        _key(ask).update(denied=decision.code)
    return Reply(decision.as_body())


def is_often(found: BeginContext) -> bool:
    """Whether this denial makes the run one that somebody has to look at."""
    now = found.denials_of_run + 1
    return now == denials.OFTEN or (now > denials.OFTEN and found.run is None)


def _show(ask: BeginRequest, found: BeginContext) -> None:
    """Let triage look at the run; one that the ledger did not know of begins with this."""
    if found.run is not None:
        Run.objects.filter(pk=found.run.id).update(revision=F("revision") + 1)
    else:
        _record(ask, [ask.opened()])


def _remember(ask: BeginRequest, found: BeginContext) -> None:
    """Keep what a rule denied: a laxer policy is tried on it."""
    labels = found.run.labels if found.run else {}
    denials.keep(
        ask.speaker.workspace_id,
        ask.speaker.agent_id or 0,
        key=ask.key,
        run=ask.planned.run,
        deed=ask.deed(labels),
    )


def _in_doubt(ask: BeginRequest, decision: InDoubt) -> Reply:
    known = decision.known
    if decision.is_new:
        error = {"type": "LeaseOver", "message": "the try ended without an outcome in its time"}
        said: dict[str, Any] = {"attempt": known.attempt, "outcome": "unknown", "error": error}
        if known.fence:
            said["fence"] = known.fence
        desk_events.say(
            _workspace(ask),
            EventType.ACTION_FAILED,
            run=known.run,
            action=known.action,
            part="gate",
            data=said,
        )
    return Reply({"answer": "in_doubt", "action": known.action, "run": known.run})


def _key_reused(ask: BeginRequest, decision: KeyReused) -> Reply:
    known = decision.known
    if "key_reused" not in known.flags:
        desk_events.say(
            _workspace(ask),
            EventType.ACTION_REFUSED,
            run=known.run,
            action=known.action,
            part="gate",
            data={"flag": "key_reused", "attempt": ask.attempt, "call": ask.args_digest},
        )
    return Reply(KEY_REUSED)


def _record(ask: BeginRequest, events: list[ParsedEvent]) -> None:
    record(ask.speaker, events)


def record(speaker: Actor, events: list[ParsedEvent]) -> None:
    """Record in the transaction that is open; raises `Refused` for the first that is not kept."""
    _check(intake.record(desk_events.plain_connection(), speaker, events))


def _check(recorded: Recorded) -> None:
    for one in recorded.answers:
        if one.problem is not None:
            what = one.problem
            raise refuse("event", what.title, what.status, what.detail)


def _key(ask: BeginRequest) -> Any:
    return GateKey.objects.filter(agent_id=ask.speaker.agent_id or 0, key=ask.key)


def _workspace(ask: BeginRequest) -> Workspace:
    return Workspace.objects.get(pk=ask.speaker.workspace_id)
