"""The engine: one function decides what comes next.

`advance(plan_id)` does whatever can be done for a plan now, and is idempotent: tasks, the sweeper,
a decision and a bored operator may all call it, at once and as often as they like. PostgreSQL is
the truth, a message only a hint.

One step is claim · check · intend · act · settle · verify, with a commit after each: whatever
breaks between two of them, the row says how far it came, and somebody else goes on from there.
"""

import logging
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction

from connectors import calls
from connectors.contract import Answer, Observation, Operation
from recovery.engine import (
    alerts,
    checks,
    claims,
    ending,
    faults,
    intents,
    probes,
    queues,
    settle,
    starting,
    steps,
    verifying,
    wire,
)
from recovery.engine.checks import Drifted, GoOn, Met, Unreadable, Void
from recovery.engine.claims import Held
from recovery.engine.clock import boot_seconds
from recovery.engine.intents import Intent
from recovery.engine.order import Act, Living, Next, next_act, next_act_of_stopped
from recovery.models import Plan, PlanState, Step, StepState
from workspaces.moves import CannotMove

logger = logging.getLogger(__name__)

CHAIN_SECONDS = 20.0
"""How long one task works on one plan, so that many plans share few workers."""

LIVING_STEPS_READ = 20
"""The law nearly always decides by the first few; all are read where it does not."""

SETTLE_AGAIN_SECONDS = 0.5
"""Between two tries to write an answer down while the database is away."""

DATABASE_AWAY = (OperationalError, InterfaceError)

UNREADABLE_SECONDS = 10.0
"""Until a target that could not be read is tried again."""

UNREADABLE_MAX = 20
"""Then a person is asked: about an hour, for the pauses grow."""


def advance(plan_id: int, *, queue: str = "") -> str:
    """Do what can be done now, and say in which queue to go on at once; mostly in none.

    `queue` is the one whose worker we are: calls to other connectors than its own are left to
    theirs. Without one, everything is done here.
    """
    until = time.monotonic() + CHAIN_SECONDS
    try:
        while _advance_once(plan_id, queue):
            if time.monotonic() > until:
                return queue or queues.ENGINE
    except queues.Elsewhere as elsewhere:
        return elsewhere.queue
    return ""


def _advance_once(plan_id: int, queue: str = "") -> bool:
    """One act of the plan; False if nothing moved, and nothing will until somebody wakes us."""
    plan = Plan.objects.get(pk=plan_id)
    if plan.state in {PlanState.WAITING, PlanState.STARTING}:
        return starting.start(plan_id)
    if plan.state not in {PlanState.RUNNING, PlanState.STOPPED}:
        return False
    following = _following(plan, queue)
    if following.act == Act.FINISH:
        ending.finish(plan_id)
    elif following.act == Act.PEOPLE:
        ending.wait_for_people(plan_id)
    act = ACTS.get(following.act)
    return act is not None and act(following.step)


def _following(plan: Plan, queue: str) -> Next:
    """What the order law says, from as few rows as decide it; raises Elsewhere."""
    rows = living(plan.pk, LIVING_STEPS_READ)
    following = _law(plan, rows)
    if following.act in {Act.PEOPLE, Act.FINISH} and len(rows) == LIVING_STEPS_READ:
        rows = living(plan.pk)
        following = _law(plan, rows)
    if queue and following.act in CALLS:
        connector = next(row.connector for row in rows if row.id == following.step)
        queues.stay(queue, connector)
    return following


def _law(plan: Plan, rows: list[Living]) -> Next:
    if plan.state == PlanState.STOPPED:
        return next_act_of_stopped(rows)
    return next_act(rows, halt=plan.halt_on_failure)


LIVING_SQL = """
SELECT s.id, state, target_type, target_id,
       wake_at IS NULL OR wake_at <= clock_timestamp(),
       coalesce(lease_until < clock_timestamp(), false), c.connector
FROM recovery_step s JOIN connectors_connection c ON c.id = s.connection_id
WHERE plan_id = %s AND state NOT IN ('verified', 'reported', 'skipped', 'cancelled')
ORDER BY position LIMIT %s
"""


def living(plan_id: int, most: int | None = None) -> list[Living]:
    """The steps of a plan that have not ended, newest effect first."""
    with connection.cursor() as cursor:
        cursor.execute(LIVING_SQL, [plan_id, most])
        return [
            Living(pk, state, (kind, name), due, over, connector)
            for pk, state, kind, name, due, over, connector in cursor.fetchall()
        ]


def _run(step_id: int) -> bool:
    held = claims.claim(step_id)
    if held is None:
        return False
    try:
        return _take_through(held)
    except CannotMove as lost:
        logger.info("step %d was taken from us: %s", step_id, lost)
        return False
    except DATABASE_AWAY:
        _give_back(held)
        raise


def _give_back(held: Held) -> None:
    """The database went away under us. If no intent was committed, nobody need wait for our lease;
    whether one was, the row itself knows, so this is a compare and swap like any other."""
    connection.close()
    try:
        steps.release(held.step, 0.0, note="The database went away before anything was sent.")
    except (CannotMove, DatabaseError) as failure:
        logger.info("step %d stays as it is: %s", held.step.pk, failure)


def _take_through(held: Held) -> bool:
    """The step is ours: look, intend, act, settle."""
    found = checks.look(held.step)
    faults.point("checked")
    match found:
        case GoOn(operation, observation):
            return _send(held, operation, observation)
        case Met(operation, observation):
            verifying.met_already(held.step, operation, observation)
        case Drifted(diff):
            _drifted(held.step, diff)
        case Void(why):
            _void(held.step, why)
        case Unreadable(why):
            _unreadable(held.step, why)
            return False
    return True


def _send(held: Held, operation: Operation, observation: Observation | None) -> bool:
    try:
        intent = intents.intend(held, operation, observation)
    except CannotMove:
        steps.release(held.step, claims.NOT_NOW_SECONDS, note="The lease was too short.")
        return False
    if intent is None:
        return True
    faults.point("intended")
    answer = _act(held, intent, operation, observation)
    faults.point("answered")
    return _settle(held, intent, operation, answer)


def _settle(held: Held, intent: Intent, operation: Operation, answer: Answer) -> bool:
    """An answer is worth more than a probe: while the lease lasts, a database that is away is asked
    again. If the lost commit came through after all, the swap finds nothing left to do."""
    while True:
        try:
            settled = settle.settle(intent, operation, answer)
        except DATABASE_AWAY:
            connection.close()
            if boot_seconds() > held.ends_at:
                raise
            time.sleep(SETTLE_AGAIN_SECONDS)
        else:
            if settled and intent.step.state == StepState.APPLIED:
                verifying.verify_loaded(intent.step)
            return settled


def _act(
    held: Held, intent: Intent, operation: Operation, observation: Observation | None
) -> Answer:
    """Outside any transaction, and only if the call ends before the lease does."""
    if boot_seconds() + operation.limit_seconds + calls.GRACE_SECONDS > held.ends_at:
        return Answer(outcome="no_effect", detail="Not sent: the lease would not outlast the call.")
    return wire.apply(intent.step, observation, intent.attempt.intended_at)


@transaction.atomic
def _drifted(step: Step, diff: list[dict[str, object]]) -> None:
    note = "Changed since the agent wrote it."
    steps.move(
        step,
        StepState.DRIFTED,
        note=note,
        say={"drift": diff},
        drift=diff,
        lease_until=None,
    )
    alerts.step_needs_a_person(step, note)


@transaction.atomic
def _void(step: Step, why: str) -> None:
    claims.needs_human(step, why)


def _unreadable(step: Step, why: str) -> None:
    """Nothing was sent, and the connection is away: later, and not for ever."""
    if step.probes + 1 >= UNREADABLE_MAX:
        _void(step, f"Its target could not be read: {why}")
        return
    seconds = min(UNREADABLE_SECONDS * 2**step.probes, 300.0)
    note = f"Its target could not be read: {why}"
    steps.release(step, seconds, note=note, probes=step.probes + 1)


def _cancel(step_id: int) -> bool:
    step = steps.load(step_id)
    try:
        steps.cancel(step, note="The plan was stopped.")
    except CannotMove:
        return False
    return True


# Acts that talk to the outside world: done by a worker of the connector's queue.
CALLS: Final = frozenset({Act.RUN, Act.PROBE, Act.VERIFY})

# What follows from the order law, for one step; each says whether anything moved.
ACTS: Final[Mapping[Act, Callable[[int], bool]]] = MappingProxyType(
    {
        Act.RUN: _run,
        Act.PROBE: probes.probe,
        Act.VERIFY: verifying.verify,
        Act.RECLAIM: claims.take_back,
        Act.CANCEL: _cancel,
    }
)
