"""Turns: what each of some plans needs next, as the order law says, read in one query."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from recovery.engine.order import Act, Living, Next, next_act, next_act_of_stopped
from recovery.engine.sql import LIVING, ask
from recovery.models import PlanState

LIVING_READ = 20
"""The law nearly always decides by the first; then by some, and all are read where it does not."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a plan needs now. `connector` is that of the step, `claims` how often it was claimed."""

    plan_id: int
    act: Act
    step: int = 0
    connector: str = ""
    claims: int = 0


TURNS_SQL = f"""
SELECT p.id, p.state, p.halt_on_failure, s.id, s.state, s.target_type, s.target_id,
    s.wake_at IS NULL OR s.wake_at <= clock_timestamp(),
    coalesce(s.lease_until < clock_timestamp(), false), s.connector, s.claims
FROM recovery_plan p LEFT JOIN LATERAL (
    SELECT r.*, c.connector FROM recovery_step r
    JOIN connectors_connection c ON c.id = r.connection_id
    WHERE r.plan_id = p.id AND {LIVING.format("r")}
    ORDER BY r.position LIMIT %s) s ON true
WHERE p.id = ANY(%s::bigint[]) ORDER BY p.id, s.position
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Standing:
    """A plan and the first of its living steps, newest effect first."""

    plan_id: int
    state: str
    halt: bool
    steps: list[Living]


def of(plan_ids: Collection[int]) -> list[Turn]:
    """The turn of each plan; of those that have ended, none."""
    found = []
    for plan in standing(plan_ids, 1):
        turn = _turn(plan)
        for most in (LIVING_READ, None):
            if turn is None or turn.act not in {Act.PEOPLE, Act.FINISH} or not plan.steps:
                break
            (plan,) = standing([plan.plan_id], most)  # noqa: PLW2901 - the same, with more steps
            turn = _turn(plan)
        if turn is not None:
            found.append(turn)
    return found


def standing(plan_ids: Collection[int], most: int | None = None) -> list[Standing]:
    """The plans, each with at most so many of its living steps."""
    plans: dict[int, Standing] = {}
    for plan_id, state, halt, *step in ask(TURNS_SQL, [most, list(plan_ids)]):
        plan = plans.setdefault(plan_id, Standing(plan_id, state, halt, []))
        if step[0] is not None:
            plan.steps.append(_living(*step))
    return list(plans.values())


def _living(
    pk: int, state: str, kind: str, name: str, due: bool, over: bool, connector: str, claims: int  # noqa: FBT001
) -> Living:  # fmt: skip
    return Living(pk, state, (kind, name), due, over, connector, claims)


def _turn(plan: Standing) -> Turn | None:
    if plan.state in {PlanState.WAITING, PlanState.STARTING}:
        return Turn(plan.plan_id, Act.START)
    if plan.state not in {PlanState.RUNNING, PlanState.STOPPED}:
        return None
    following = _law(plan.state, plan.steps, halt=plan.halt)
    step = next((one for one in plan.steps if one.id == following.step), None)
    if step is None:
        return Turn(plan.plan_id, following.act)
    return Turn(plan.plan_id, following.act, step.id, step.connector, step.claims)


def _law(state: str, living: Sequence[Living], *, halt: bool) -> Next:
    if state == PlanState.STOPPED:
        return next_act_of_stopped(living)
    return next_act(living, halt=halt)
