"""The end of a plan: when nothing of it lives any more, and what that means for its case."""

from collections import Counter

from django.db import transaction
from django.db.models import Exists, F, OuterRef

from amends.protocol.vocabulary import ActionClass, EventType
from approvals import policy
from approvals.policy import ToolCall, class_of
from ledger.models import Action, ActionState, Compensated, Effect, Reversibility, Run
from recovery.cases import lifecycle
from recovery.engine import starting
from recovery.models import Case, CaseState, Plan, PlanState, Step, StepState
from recovery.models.steps import ENDED
from workspaces.clock import Clock
from workspaces.moves import CannotMove


def finish(plan_id: int) -> None:
    """End a plan all of whose steps have ended.

    The run is locked before its plan and its case, as triage and the start of a plan do; another
    order would meet them in a deadlock.
    """
    try:
        with transaction.atomic():
            plan, run = starting.locked(plan_id)
            states = Counter(plan.steps.values_list("state", flat=True))
            if states.keys() <= ENDED:
                _finish(plan, run, states)
    except CannotMove:
        return


def _finish(plan: Plan, run: Run, ended: Counter[str]) -> None:
    if plan.state == PlanState.STOPPED:
        if Plan.objects.filter(pk=plan.pk, ended_at=None).update(ended_at=Clock()):
            starting.move_case(plan, CaseState.OPEN)
            _let_triage_look(run)
        return
    starting.move(plan, PlanState.FINISHED, ended_at=Clock())
    told = (StepState.VERIFIED, StepState.REPORTED, StepState.SKIPPED)
    starting.say(plan, EventType.PLAN_FINISHED, data={str(state): ended[state] for state in told})
    if ended.keys() == {StepState.VERIFIED} and is_restored(plan.case, run):
        lifecycle.restored(plan.case)
    else:
        starting.move_case(plan, CaseState.OPEN)
    _let_triage_look(run)


def is_restored(case: Case, run: Run) -> bool:
    """Whether no effect stands, nothing is in doubt, and nothing happened that cannot be undone.

    What an irreversible call did is not restored by undoing what is left of it here, and is there
    even if nobody told it (`RunFacts.irreversible`, asked in three looks).
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
        or _untold(run)
    )


def _untold(run: Run) -> bool:
    """Whether an irreversible call succeeded of which nobody told what it did."""
    told = Effect.objects.filter(action=OuterRef("pk"), withdrawn=False)
    silent = Action.objects.filter(~Exists(told), run=run, state=ActionState.SUCCEEDED)
    calls = silent.exclude(compensated=Compensated.CORRECTED).only(
        "tool", "action_class", "trusted"
    )
    in_force = policy.active(run.workspace_id)
    return any(
        class_of(
            in_force, ToolCall(tool=one.tool, action_class=one.action_class, trusted=one.trusted)
        )
        == ActionClass.EXTERNAL_IRREVERSIBLE
        for one in calls
    )


def wait_for_people(plan_id: int) -> None:
    """What is left of the plan waits for a person: the case goes back into the queue as open."""
    lifecycle.follow(Case.objects.filter(plans=plan_id, state=CaseState.RECOVERING), CaseState.OPEN)


def _let_triage_look(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(revision=F("revision") + 1)
