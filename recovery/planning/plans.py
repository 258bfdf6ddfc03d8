"""Plans: written once, when somebody submits what was previewed; what would run is frozen then."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from django.db import transaction

from amends.protocol.vocabulary import EventType
from approvals import approval_requests, plan_sums
from ledger import desk_events
from ledger.models import Checkpoint, Run
from recovery.cases.lifecycle import (
    REFUSALS,
    NotPossible,
    OutOfDate,
    move,
    refuse_if_claimed,
    standing_directives,
)
from recovery.engine import approved_calls, plan_lifecycle
from recovery.models import Case, CaseState, Plan, PlanState, Step, StepState
from recovery.planning.drafting import DraftStep
from recovery.planning.previews import (
    CHOICES,
    PlanDraft,
    draft,
    next_number,
    restores_of,
    staying,
    warnings,
)
from recovery.run_facts.sentences import many, shortened
from recovery.tasks import run_plan
from workspaces import locks
from workspaces.clock import Clock, database_time
from workspaces.free_text import REASON_CHARACTERS_MAX, kept_text
from workspaces.models import User
from workspaces.moves import BORN, CannotMove
from workspaces.wakeups import wake_on_commit

__all__ = ["CHOICES", "CannotSubmit", "PlanDraft", "TargetsDrifted", "draft", "submit"]

REPLACED = "A new plan takes its place."
UNDONE_LATELY = "It was undone within the hour already."


class CannotSubmit(NotPossible):
    """We stopped because this plan may not run as it is; the sentence says what is in the way."""


class TargetsDrifted(CannotSubmit):
    """We stopped because targets have changed since the agent, and nobody has said what should
    happen; the draft shows how they stand now.
    """

    def __init__(self, drafted: PlanDraft) -> None:
        super().__init__(drafted.why_not)
        self.draft = drafted


def submit(
    case: Case,
    *,
    digest: str,
    revision: int,
    restores: str = "",
    by: User | None,
    reason: str,
    reach: Checkpoint | None = None,
    choices: Mapping[int, str] | None = None,
    automatic: bool = False,
) -> Plan:
    """Freeze what was previewed and start it, or put it in front of the people the policy names;
    what is submitted once more as it was is the plan that was submitted.

    Raises OutOfDate where the draft is no longer the one of this digest and revision, or restores
    something else (`restores` is empty where an older version showed it), CannotSubmit where it may
    not run, TargetsDrifted where a choice about a drifted target is missing,
    CannotMove where somebody else has claimed the case, InvalidInput where the reason is too long.
    `automatic` and no `by`: the policy itself compensates.
    """
    reason = kept_text(reason, REASON_CHARACTERS_MAX)
    try:
        refuse_if_claimed(case, by, CaseState.RECOVERING)  # a draft takes long
        drafted = draft(case, reach=reach, choices=choices)
        _check(drafted, digest=digest, revision=revision, restores=restores, by=by)
        _make_room(drafted.case, by)
        plan_lifecycle.take_questions_back(drafted.case, why=REPLACED)
        return _write(drafted, by=by, reason=reason, automatic=automatic)
    except REFUSALS:
        # By a second click, or a proxy that heard no answer. The case moved on by one with it.
        mine = case.plans.filter(drafted_by=by, automatic=automatic, case_revision=revision + 1)
        made = mine.first()
        said = (digest, reason, "override" in (choices or {}).values())
        if made is None or (made.digest, made.reason, made.override_drift) != said:
            raise
        if restores not in {"", restores_of(made)}:
            raise
        return made


def _check(
    drafted: PlanDraft, *, digest: str, revision: int, restores: str, by: User | None
) -> None:
    refuse_if_claimed(drafted.case, by, CaseState.RECOVERING)
    if drafted.case.revision != revision:
        raise OutOfDate(drafted.case)
    if drafted.digest != digest or restores not in {"", drafted.restores}:
        raise OutOfDate(drafted.case, "The plan has changed since you saw it: look at it again.")
    if drafted.hindrance:
        raise CannotSubmit(drafted.hindrance)
    if drafted.undecided:
        raise TargetsDrifted(drafted)


@transaction.atomic
def _write(drafted: PlanDraft, *, by: User | None, reason: str, automatic: bool) -> Plan:
    if automatic:
        one_by_one(drafted.case.workspace_id)
        if any(undone_lately(drafted, one) for one in drafted.steps):
            raise CannotSubmit(UNDONE_LATELY)
    run = locks.locked(Run.objects.all()).get(pk=drafted.run.pk)
    case = locks.locked(Case.objects.all()).get(pk=drafted.case.pk)
    if case.revision != drafted.case.revision:
        raise OutOfDate(case)
    if run.revision != drafted.run.revision:
        raise OutOfDate(case, "The run went on since you saw it: look at the plan again.")
    plan = _plan(drafted, case, run, by=by, reason=reason, automatic=automatic)
    _steps(plan, drafted)
    _record(plan, drafted, by)
    if drafted.judgement is not None and drafted.judgement.approval == "MANUAL":
        _ask(plan, drafted, by)
        _move(case, CaseState.WAITING, plan)
    else:
        _move(case, CaseState.RECOVERING, plan)
        _hold(plan, drafted, run)
        plan_lifecycle.start(plan.pk)
    wake_on_commit(run_plan, plan.pk)
    plan.refresh_from_db()
    return plan


@transaction.atomic
def _make_room(case: Case, by: User | None) -> None:
    """What an earlier plan left for people is superseded; what it has on the wire stops us.

    In a transaction of its own: whoever holds a step may wait for the run, so we must not hold it.
    What is left for people comes first, then the plans and their case, as when a case is closed. A
    plan that came
    since the draft was drawn is not ours to push aside: raises OutOfDate, and nothing has changed.
    """
    plan_lifecycle.lock_leftovers(case)
    known = plan_lifecycle.locked_of(case)
    now = locks.locked(Case.objects.all()).get(pk=case.pk)
    if now.revision != case.revision:
        raise OutOfDate(now)
    for plan in known:
        try:
            plan_lifecycle.supersede(plan, by=by, why=REPLACED)
        except CannotMove as busy:
            raise CannotSubmit(f"Plan {plan.number} still runs: {busy.why}.") from busy


def _plan(
    drafted: PlanDraft, case: Case, run: Run, *, by: User | None, reason: str, automatic: bool
) -> Plan:
    return Plan.objects.create(
        workspace_id=case.workspace_id,
        case=case,
        number=next_number(case),
        was=BORN,
        state=PlanState.WAITING,
        digest=drafted.digest,
        headline=drafted.headline,
        reach=drafted.reach,
        case_revision=case.revision,
        run_revision=run.revision,
        basis=approved_calls.basis_of(run, [one.effect.pk for one in drafted.steps]),
        more_standing=drafted.more,
        policy_digest=drafted.policy.digest,
        accounts=drafted.accounts,
        halt_on_failure=drafted.policy.halt_on_failure,
        automatic=automatic,
        override_drift="override" in drafted.choices.values(),
        drafted_by=by,
        reason=reason,
        submitted_at=Clock(),
    )


def _steps(plan: Plan, drafted: PlanDraft) -> None:
    """Born ready where nothing newer is in front, else blocked."""
    rows = []
    for one in drafted.steps:
        one.step.plan = plan
        one.step.was = BORN
        one.step.state = StepState.READY if one.step.position == 1 else StepState.BLOCKED
        rows.append(one.step)
    Step.objects.bulk_create(rows)


def _record(plan: Plan, drafted: PlanDraft, by: User | None) -> None:
    desk_events.record(
        plan.workspace,
        EventType.PLAN_SUBMITTED,
        run=drafted.run.run,
        by=by,
        part="policy",
        data={
            "case": plan.case_id,
            "plan": plan.number,
            "digest": plan.digest,
            "headline": plan.headline,
            "reason": plan.reason,
            "automatic": plan.automatic,
            "reach": plan.reach.name if plan.reach else None,
            "steps": [
                {
                    "position": one.step.position,
                    "undoes": [one.action.action, one.effect.position],
                    "digest": one.step.digest,
                    "title": one.preview.title,
                    "chosen": one.chosen,
                }
                for one in drafted.steps
            ],
            "left": [[one.action.action, one.effect.position] for one in drafted.skipped],
            "cannot": [
                [one.action.action, one.effect.position, one.code] for one in drafted.cannot
            ],
            **({"more_standing": drafted.more} if drafted.more else {}),
        },
    )


def _told_whole(headline: str, drafted: PlanDraft) -> str:
    """What is put to people, with how much of it no step undoes: who says yes knows what stays."""
    later = f"{many(drafted.more, 'more effect')} left to later plans" if drafted.more else ""
    told = [*([staying(drafted)] if drafted.cannot else []), *filter(None, [later])]
    if not told:
        return headline
    stays = f" ({', '.join(told)})"
    return shortened(headline, approval_requests.HEADLINE_CHARACTERS_MAX - len(stays)) + stays


def _ask(plan: Plan, drafted: PlanDraft, by: User | None) -> None:
    assert drafted.judgement is not None  # noqa: S101 - _write asks only where one says MANUAL
    try:
        approval = approval_requests.ask_for_plan(
            plan.workspace,
            plan.pk,
            case_ref=str(plan.case_id),
            digest=plan.digest,
            accounts=plan.accounts,
            calls=[one.facts for one in drafted.steps],
            judgement=drafted.judgement,
            headline=_told_whole(plan.headline, drafted),
            previews=[one.step.preview | {"warnings": warnings(one)} for one in drafted.steps],
            by=by,
            reason=plan.reason,
            amount=drafted.money,
            run=drafted.run.run,
            agent=drafted.run.agent,
            affected=[one.effect.person for one in drafted.steps],
            expires_seconds=drafted.policy.plan_expires_seconds,
        )
    except approval_requests.NobodyToAsk as nobody:
        raise CannotSubmit(f"Nobody can be asked to approve it: {nobody}.") from nobody
    Plan.objects.filter(pk=plan.pk).update(approval_id=approval.pk)


def _hold(plan: Plan, drafted: PlanDraft, run: Run) -> None:
    """What its steps add to the sums of rules, where nobody is asked; else with the last yes."""
    tool_calls = [
        approved_calls.tool_call_of(one.step, one.step.connection, one.operation)
        for one in drafted.steps
    ]
    plan_sums.hold(plan.workspace_id, plan.pk, tool_calls, run=run)


def _move(case: Case, state: str, plan: Plan) -> None:
    """The case follows its plan. Directives to resume are withdrawn: going back comes first."""
    standing_directives(case.run_id, "resume").update(withdrawn_at=Clock())
    move(case, state)
    Plan.objects.filter(pk=plan.pk).update(case_revision=case.revision)


AGAIN_SECONDS = 3600
# The first half of the advisory lock's key; the second is the workspace.
LOCK = 0xA070


def one_by_one(workspace: int) -> None:
    """Until the transaction ends, nobody else starts a plan of this workspace by itself: whoever
    comes after this call sees what those before it have started."""
    locks.advisory(LOCK, workspace)


def undone_lately(draft: PlanDraft, one: DraftStep) -> bool:
    """Whether this agent's tool was undone on this target by itself within the hour."""
    since = database_time() - timedelta(seconds=AGAIN_SECONDS)
    recent = Plan.objects.filter(
        workspace=draft.case.workspace_id, automatic=True, submitted_at__gt=since
    )
    return Step.objects.filter(
        plan__in=recent,
        target_type=one.step.target_type,
        target_id=one.step.target_id,
        effect__action__tool=one.action.tool,
        effect__action__run__agent=draft.run.agent_id,
    ).exists()
