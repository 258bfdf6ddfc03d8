"""The plan itself: starting, stopping and ending it, and what each means for its case.

A plan starts in one transaction under its run's row lock: what it was drafted from still stands, no
call of the run is under way, its grant is used, the run is held. A run that is alive is first told
to stop; from then on the gate denies it every `begin` and its lease is not renewed, so that an
agent which does not listen cannot hold it up for ever. It ends when nothing of it lives any more.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from amends.protocol.vocabulary import WITHOUT_EFFECT, ActionClass, EventType
from approvals import approval_requests, deciders, digests, grants, pauses, plan_sums, policy
from approvals.models import LIVING, Approval, ApprovalState
from approvals.policy import Policy, ToolCall, class_of
from ledger import desk_events
from ledger.fold.actions import CHANGED_NOTHING
from ledger.models import Action, ActionState, Compensated, Effect, Reversibility, Run, RunState
from recovery.cases import lifecycle
from recovery.engine import approved_calls, steps
from recovery.models import PLAN_MOVES, Case, CaseState, Plan, PlanState, Step, StepState
from recovery.models.cases import UNDER_A_PLAN
from recovery.models.plans import (
    DONE,
    ENDED,
    ON_THE_WIRE,
    OPEN_ENDED,
    STARTED,
    TO_RUN,
    UNSTARTED,
    WAITS_FOR_PEOPLE,
    WAITS_FOR_TURN,
    try_in_doubt,
)
from workspaces import locks, moves
from workspaces.clock import Clock
from workspaces.models import User
from workspaces.moves import CannotMove

ENDED_QUESTIONS = {
    ApprovalState.REJECTED: "It was rejected.",
    ApprovalState.WITHDRAWN: "The question was withdrawn.",
}


@dataclass(frozen=True)
class StopResult:
    """What a stop did, and what it could not: these calls are seen through."""

    cancelled: int
    on_the_wire: list[Step]


def start(plan_id: int) -> bool:
    """One go at starting; True if it made the plan run."""
    try:
        with transaction.atomic():
            return _start(*locked(plan_id))
    except CannotMove:
        return False


def locked(plan_id: int) -> tuple[Plan, Run]:
    """The plan and its run, both locked, the run first, like everybody who starts or drafts."""
    run = locks.locked(Run.objects.all()).get(case__plans=plan_id)
    return locked_alone(plan_id), run


def locked_alone(plan_id: int) -> Plan:
    """The plan alone. A worker holds a step while it writes to the run, so whoever goes on to steps
    that may be in hand must not hold the run."""
    return (
        locks.locked(Plan.objects.all())
        .select_related("case__run", "workspace", "reach", "drafted_by")
        .get(pk=plan_id)
    )


def locked_of(*cases: Case) -> list[Plan]:
    """The plans of cases that may be pushed aside, locked, oldest first; the caller locks what they
    have left for people before them (`lock_leftovers`), then the runs or not at all, and the cases
    themselves last."""
    plans = Plan.objects.filter(case__in=cases, state__in=OPEN_ENDED)
    return list(locks.locked(plans).order_by("pk"))


def lock_leftovers(*cases: Case) -> None:
    """The steps that started plans have left for people, locked. Whoever settles one holds it, and
    goes on to its run and its case, so both are locked after it by everybody."""
    left = Step.objects.filter(
        plan__case__in=cases,
        plan__state__in=STARTED,
        state__in=WAITS_FOR_PEOPLE,
    )
    list(locks.locked(left).order_by("pk").values_list("pk"))


def _start(plan: Plan, run: Run) -> bool:
    if plan.state == PlanState.WAITING and not _may_start(plan):
        return False
    if plan.state not in UNSTARTED:
        return False
    outdated = why_outdated(plan, run)
    if outdated:
        end_unstarted(plan, PlanState.SUPERSEDED, outdated)
        return False
    if plan.state == PlanState.WAITING and plan.approval_id is not None:
        approval = Approval.objects.get(pk=plan.approval_id)
        if not grants.use(approval.pk, approval.digest):
            if why := grants.unproven(approval):
                end_unstarted(plan, PlanState.SUPERSEDED, why)
                steps.plan_is_unproven(plan, why)
            return False
    hold(plan, run)
    if is_live(run):
        if plan.state == PlanState.WAITING:
            move(plan, PlanState.STARTING)
            lifecycle.direct(run.pk, "stop", by=plan.drafted_by, acknowledge_by=run.lease_until)
            record(plan, EventType.PLAN_STARTING, data={"waits_for": run.run})
        return False
    move(plan, PlanState.RUNNING, started_at=Clock())
    directives = lifecycle.standing_directives(plan.case.run_id, "stop")
    directives.update(acknowledged_at=Clock())
    move_case(plan, CaseState.RECOVERING)
    record(plan, EventType.PLAN_STARTED)
    return True


def _may_start(plan: Plan) -> bool:
    """Whether the people have said yes; where they have said no, that ends the plan."""
    if plan.approval_id is None:
        return True
    approval = Approval.objects.only("state", "was").get(pk=plan.approval_id)
    ended = ENDED_QUESTIONS.get(ApprovalState(approval.state))
    if approval.state == ApprovalState.EXPIRED:
        ended = f"It expired: {deciders.why_expired(approval)}."
    if ended is not None:
        end_unstarted(plan, PlanState.REJECTED, ended)
    return approval.state == ApprovalState.GRANTED


def why_outdated(plan: Plan, run: Run) -> str:
    """Why the plan is not the one that would be drafted, or approved, now; or nothing."""
    if plan.case.state == CaseState.CLOSED:
        return "Its case was closed."
    if run.revision != plan.run_revision:
        undoes = plan.steps.values_list("effect", flat=True)
        if approved_calls.basis_of(run, undoes) != plan.basis:
            return "The run has changed since the plan was drafted."
    found = list(plan.steps.order_by("position").values_list("digest", flat=True))
    if approved_calls.plan_digest(plan, plan.workspace.slug, found) != plan.digest:
        return "Its steps are not those that were drafted."
    if plan.approval_id is None:
        return ""
    approval = Approval.objects.get(pk=plan.approval_id)
    opens = plan.accounts if plan.accounts and any(plan.accounts.values()) else {}
    is_approved = digests.digest_over(approval, found) == approval.digest
    is_approved = is_approved and opens == approval.subject.get("accounts", {})
    if not is_approved:
        return "Its steps, or whose accounts they go to, were not approved so."
    has_left = approval.state != ApprovalState.WAITING and not grants.still_entitled(approval)
    return grants.HAS_LEFT if has_left else ""


def hold(plan: Plan, run: Run) -> None:
    """From here on `begin` is denied to the run."""
    Run.objects.filter(pk=run.pk).update(held_by=f"case {plan.case_id}")


def is_live(run: Run) -> bool:
    """Whether the run, or one of its calls, may still act. Bounded: nothing renews a held lease."""
    if not Run.objects.filter(pk=run.pk, lease_until__gt=Clock()).exists():
        return False
    calling = Action.objects.filter(run=run, state=ActionState.RUNNING)
    return run.state == RunState.RUNNING or calling.exists()


def end_unstarted(plan: Plan, state: str, why: str, *, by: User | None = None) -> None:
    """End a plan of which nothing was sent; the caller holds both locks."""
    was = plan.state
    move(plan, state, ended_at=Clock())
    _cancel(_steps(plan, TO_RUN), why, by)
    if was == PlanState.STARTING:
        let_go(plan)
    _take_question_back(plan, why)
    move_case(plan, CaseState.OPEN)
    record(plan, EventType(f"plan.{state}"), by=by, data={"reason": why})


@transaction.atomic
def take_questions_back(case: Case, *, why: str) -> None:
    """Nobody is asked any longer about the case's superseded plans.

    In a transaction of its own, and harmless to repeat: an approval is locked after its run, which
    whoever supersedes a plan must not hold.
    """
    for plan in case.plans.filter(state=PlanState.SUPERSEDED, approval_id__isnull=False):
        _take_question_back(plan, why)


def _take_question_back(plan: Plan, why: str) -> None:
    """Nobody is asked any longer about a plan that has ended; an unused grant starts nothing."""
    if plan.approval_id is None:
        return
    approval = Approval.objects.get(pk=plan.approval_id)
    if approval.state not in LIVING:
        return
    approval = deciders.locked(approval)
    if approval.state in LIVING:
        approval_requests.void(approval, why=why)


def let_go(plan: Plan) -> None:
    """The run may go on: nothing of the plan has happened."""
    held = Run.objects.filter(pk=plan.case.run_id, held_by=f"case {plan.case_id}")
    held.update(held_by=pauses.still_holds())
    lifecycle.standing_directives(plan.case.run_id).update(withdrawn_at=Clock())


@transaction.atomic
def stop(plan: Plan, *, by: User | None, reason: str = "") -> StopResult:
    """Cancel what is not sent, and say what is on the wire; raises CannotMove if it has ended."""
    unstarted = Plan.objects.filter(pk=plan.pk, state__in=UNSTARTED)
    plan = locked(plan.pk)[0] if unstarted.exists() else locked_alone(plan.pk)
    why = reason or f"Stopped by {by}."
    if plan.state in UNSTARTED:
        count = plan.steps.count()
        end_unstarted(plan, PlanState.STOPPED, why, by=by)
        Plan.objects.filter(pk=plan.pk).update(stopped_by=by)
        return StopResult(count, [])
    move(plan, PlanState.STOPPED, stopped_by=by)
    # Under their locks: a step that a worker claims in this very moment is met as claimed, and
    # one that it sends is no longer among them. Nothing moves on behind our back, so what is on
    # the wire is what we say.
    cancelled = _cancel(_steps(plan, TO_RUN, lock=True), why, by)
    wire = _steps(plan, ON_THE_WIRE)
    record(
        plan,
        EventType.PLAN_STOPPED,
        by=by,
        data={
            "reason": why,
            "cancelled": cancelled,
            "on_the_wire": [steps.action_of(step) for step in wire],
        },
    )
    return StopResult(cancelled, wire)


def _cancel(ending: list[Step], why: str, by: User | None) -> int:
    """How many were cancelled; the others are in doubt, and left to people."""
    cancelled = [step for step in ending if steps.cancel_or_ask(step, note=why, by=by)]
    steps.release_sums(cancelled)
    return len(cancelled)


def _is_under_way(step: Step) -> bool:
    if step.state in WAITS_FOR_TURN:
        return bool(step.tries and step.has_try_in_doubt)
    return step.state != StepState.NEEDS_HUMAN or step.is_lost


@transaction.atomic
def supersede(plan: Plan, *, by: User | None, why: str) -> None:
    """Make room for a new plan of the same case: what waits for people or its turn is cancelled.
    One that was stopped, and has nothing of that left, has ended and stays as it ended.

    Raises CannotMove while one of its calls is on the wire, or lost there.
    """
    plan = locked_alone(plan.pk)
    held = plan.steps.filter(state__in=[*TO_RUN, *ON_THE_WIRE, StepState.NEEDS_HUMAN])
    told = held.annotate(in_doubt=try_in_doubt())
    for step in told:
        step.has_try_in_doubt = step.in_doubt
    wire = next(filter(_is_under_way, told), None)
    if wire is not None:
        raise CannotMove(plan, PlanState.SUPERSEDED, f"step {wire.position} is under way")
    cancelled = _cancel(_steps(plan, [*TO_RUN, *WAITS_FOR_PEOPLE]), why, by)
    # One that went out between the two looks is in neither; no step is locked here, for who settles
    # one holds it and waits for its case.
    gone_out = [StepState.CLAIMED, *ON_THE_WIRE, StepState.NEEDS_HUMAN]
    if plan.steps.filter(state__in=gone_out).exists():
        raise CannotMove(plan, PlanState.SUPERSEDED, "a step has gone out meanwhile")
    plan_sums.settle(plan.pk)
    goes_on = plan.ended_at is None or cancelled > 0
    if goes_on and PlanState.SUPERSEDED in PLAN_MOVES[plan.state]:
        move(plan, PlanState.SUPERSEDED, ended_at=Clock())
        # Should the new plan not come after all, the case is in the queue. No new revision, for who
        # makes room has seen the one there is.
        Case.objects.filter(pk=plan.case_id, state__in=UNDER_A_PLAN).update(state=CaseState.OPEN)
        record(plan, EventType.PLAN_SUPERSEDED, by=by, data={"reason": why})


def _steps(plan: Plan, states: "list[str] | tuple[str, ...]", *, lock: bool = False) -> list[Step]:
    found = Step.objects.filter(plan=plan, state__in=list(states)).order_by("position")
    found = locks.locked(found) if lock else found
    return list(found.select_related(*steps.RELATED))


def move(plan: Plan, to: str, **changes: Any) -> None:
    """Move the plan; raises CannotMove."""
    moves.move(plan, to, moves=PLAN_MOVES, **changes)


def move_case(plan: Plan, to: str) -> None:
    """Let the case say what its plan does; a closed one stays closed."""
    lifecycle.follow(Case.objects.filter(pk=plan.case_id), to)


def record(
    plan: Plan, what: EventType, *, by: User | None = None, data: dict[str, object] | None = None
) -> None:
    """Write an event into the plan's own run."""
    desk_events.record(
        plan.workspace,
        what,
        run=steps.run_of(plan),
        data={"case": plan.case_id, "of": plan.case.run.run, "digest": plan.digest} | (data or {}),
        by=by,
        part="engine",
    )


# The end.


def finish(plan_id: int) -> bool:
    """End a plan all of whose steps have ended. False: nothing of it goes on.

    The run is locked before its plan and its case, as triage and the start of a plan do; another
    order would meet them in a deadlock.
    """
    try:
        with transaction.atomic():
            plan, run = locked(plan_id)
            states = Counter(plan.steps.values_list("state", flat=True))
            if states.keys() <= ENDED:
                _finish(plan, run, states)
                plan_sums.settle(plan.pk)
    except CannotMove:
        pass
    return False


def _finish(plan: Plan, run: Run, ended: Counter[str]) -> None:
    if plan.state == PlanState.STOPPED:
        if Plan.objects.filter(pk=plan.pk, ended_at=None).update(ended_at=Clock()):
            move_case(plan, CaseState.OPEN)
            steps.let_triage_look(run)
        return
    move(plan, PlanState.FINISHED, ended_at=Clock())
    counted = (*DONE, StepState.SKIPPED)
    record(plan, EventType.PLAN_FINISHED, data={str(state): ended[state] for state in counted})
    # Whoever was told of a plan's work that was undone is told anew.
    told = [case.pk for case in cases_behind(run)]
    Case.objects.filter(pk__in=told).update(corrections_drafted_at=None)
    # What somebody said while it ran nobody has looked at yet.
    since = plan.submitted_at
    unheard = since is not None and plan.case.reports.filter(at__gt=since).exists()
    if ended.keys() == {StepState.VERIFIED} and not unheard and is_restored(plan.case, run):
        lifecycle.restored(plan.case)
    else:
        move_case(plan, CaseState.OPEN)
    steps.let_triage_look(run)


def cases_behind(run: Run) -> Iterator[Case]:
    """The case whose plan the desk recorded as this run, and so on back to that of an agent's."""
    number = steps.plan_number(run)
    while number is not None:
        cases = Case.objects.select_related("run", "workspace")
        case = cases.filter(workspace=run.workspace_id, plans=number).first()
        if case is None:
            return
        yield case
        earlier = steps.plan_number(case.run)
        # Whatever a plan undoes is older than it.
        number = earlier if earlier is not None and earlier < number else None


def is_restored(case: Case, run: Run) -> bool:
    """Whether no effect stands, nothing is in doubt, and nothing happened that cannot be undone.

    What an irreversible call did is not restored by undoing what is left of it here, and what a
    call did is there even if nobody told it (`RunFacts.irreversible`, asked in three looks).
    """
    effects = Effect.objects.filter(action__run=run, withdrawn=False)
    doubtful = Action.objects.filter(run=run, state__in=[ActionState.UNKNOWN, ActionState.RUNNING])
    lasting = Step.objects.filter(
        plan__case=case, state=StepState.VERIFIED, reversibility=Reversibility.IRREVERSIBLE
    )
    return not (
        doubtful.exists()
        or effects.filter(action__state=ActionState.SUCCEEDED)
        .exclude(compensated=Compensated.COMPENSATED)
        .exists()
        or lasting.exists()
        or _is_silent(run)
    )


def _is_silent(run: Run) -> bool:
    """Whether a call succeeded that changed something, as catalogue or agent have it, and nobody
    told what (`RunFacts.is_untold`). That one which cannot be undone changed nothing is not taken
    on its agent's word: a page says that it happened.
    """
    effects = Effect.objects.filter(action=OuterRef("pk"), withdrawn=False)
    silent = Action.objects.filter(~Exists(effects), run=run, state=ActionState.SUCCEEDED)
    undone = [Compensated.CORRECTED, Compensated.COMPENSATED]
    calls = silent.exclude(compensated__in=undone).order_by()
    calls = calls.annotate(says_nothing=Q(flags__contains=[CHANGED_NOTHING]))
    kinds = calls.values_list("tool", "action_class", "says_nothing")
    in_force = policy.active(run.workspace_id)
    return any(
        _left_something(in_force, tool, said, says_nothing=is_said)
        for tool, said, is_said in kinds.distinct()
    )


def _left_something(in_force: Policy, tool: str, said: str, *, says_nothing: bool) -> bool:
    found = class_of(in_force, ToolCall(tool=tool, action_class=said, trusted=True))
    if says_nothing:
        return found == ActionClass.EXTERNAL_IRREVERSIBLE
    return found not in WITHOUT_EFFECT


def wait_for_people(plan_id: int) -> bool:
    """What is left of the plan waits for a person: the case goes back into the queue as open.
    False: nothing of it goes on.
    """
    lifecycle.follow(Case.objects.filter(plans=plan_id, state=CaseState.RECOVERING), CaseState.OPEN)
    return False
