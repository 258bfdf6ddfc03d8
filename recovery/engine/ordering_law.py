"""The ordering law: which step of a plan comes next, and what is to be done with it.

Newest effect first. A step waits until every newer one has ended; one that waits for a person holds
back only older steps on the same target (all of them, under HALT). While a newer one is unknown,
probing goes on first, which is bounded. All of it is a pure function of the steps that still live.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum

from recovery.engine.queries import NEXT_ACTIONS_SQL, ask
from recovery.models import PlanState, StepState
from recovery.models.plans import IN_HAND, STARTED, UNSTARTED, WAITS_FOR_PEOPLE, WAITS_FOR_TURN


@dataclass(frozen=True, slots=True)
class LivingStep:
    """A step that has not ended, as far as the law needs to know it."""

    id: int
    state: str
    target: tuple[str, str]
    due: bool = True
    lease_over: bool = False
    connector: str = ""
    claims: int = 0


class PlanAction(Enum):
    START = "start"  # of the plan itself, when the people have said yes
    RUN = "run"  # unblock if need be, claim, and go on
    PROBE = "probe"
    VERIFY = "verify"
    RECLAIM = "reclaim"  # its worker is gone
    CANCEL = "cancel"
    WAIT = "wait"  # for another worker, or for a time
    PEOPLE = "people"  # nothing more happens until a person acts
    FINISH = "finish"


Needed = tuple[PlanAction, LivingStep | None]
"""What a plan needs now, and of which of its steps."""


def next_act(living: Iterable[LivingStep], *, halt: bool) -> Needed:
    """What a running plan needs. `living` is in the order of the plan, newest effect first."""
    held: set[tuple[str, str]] = set()
    for step in living:
        if step.state in WAITS_FOR_PEOPLE:
            if halt:
                return PlanAction.PEOPLE, step
            held.add(step.target)
        elif step.state not in WAITS_FOR_TURN:
            return _on_the_way(step)
        elif step.target not in held:
            return (PlanAction.RUN if step.due else PlanAction.WAIT), step
    return (PlanAction.PEOPLE if held else PlanAction.FINISH), None


def next_act_of_stopped(living: Iterable[LivingStep]) -> Needed:
    """What a stopped plan needs: what is on the wire is seen through, the rest is cancelled."""
    people = False
    for step in living:
        if step.state in WAITS_FOR_PEOPLE:
            people = True
        elif step.state in WAITS_FOR_TURN:
            return PlanAction.CANCEL, step
        else:
            return _on_the_way(step)
    return (PlanAction.PEOPLE if people else PlanAction.FINISH), None


def _on_the_way(step: LivingStep) -> Needed:
    if step.state in IN_HAND:
        return (PlanAction.RECLAIM if step.lease_over else PlanAction.WAIT), step
    if not step.due:
        return PlanAction.WAIT, step
    return (PlanAction.PROBE if step.state == StepState.UNKNOWN else PlanAction.VERIFY), step


# Next actions: what each of some plans needs next, by the ordering law, read in one query.

LIVING_READ = 20
"""The law nearly always decides by the first; then by some, and all are read where it does not."""


@dataclass(frozen=True, slots=True)
class NextAction:
    """What a plan needs now. `connector` is that of the step, `claims` how often it was claimed."""

    plan_id: int
    act: PlanAction
    step: int = 0
    connector: str = ""
    claims: int = 0


@dataclass(frozen=True, slots=True)
class LivingPlan:
    """A plan and the first of its living steps, newest effect first."""

    plan_id: int
    state: str
    halt: bool
    steps: list[LivingStep]


def next_actions(plan_ids: Collection[int]) -> list[NextAction]:
    """What each plan needs next; of those that have ended, nothing."""
    found = []
    for plan in living_plans(plan_ids, 1):
        action = _next_action(plan)
        for most in (LIVING_READ, None):
            if (
                action is None
                or action.act not in {PlanAction.PEOPLE, PlanAction.FINISH}
                or not plan.steps
            ):
                break
            (plan,) = living_plans([plan.plan_id], most)  # noqa: PLW2901 - the same, with more steps
            action = _next_action(plan)
        if action is not None:
            found.append(action)
    return found


def living_plans(plan_ids: Collection[int], most: int | None = None) -> list[LivingPlan]:
    """The plans, each with at most so many of its living steps."""
    plans: dict[int, LivingPlan] = {}
    for plan_id, state, halt, *step in ask(NEXT_ACTIONS_SQL, [most, list(plan_ids)]):
        plan = plans.setdefault(plan_id, LivingPlan(plan_id, state, halt, []))
        if step[0] is not None:
            pk, step_state, kind, name, *rest = step
            plan.steps.append(LivingStep(pk, step_state, (kind, name), *rest))
    return list(plans.values())


def _next_action(plan: LivingPlan) -> NextAction | None:
    if plan.state in UNSTARTED:
        return NextAction(plan.plan_id, PlanAction.START)
    if plan.state not in STARTED:
        return None
    if plan.state == PlanState.STOPPED:
        act, step = next_act_of_stopped(plan.steps)
    else:
        act, step = next_act(plan.steps, halt=plan.halt)
    if step is None:
        return NextAction(plan.plan_id, act)
    return NextAction(plan.plan_id, act, step.id, step.connector, step.claims)
