"""Claims: taking a step in hand for a while, and taking it back from a worker that is gone.

A claim is a lease by the database's clock and a fencing token that rises with every claim. What a
worker that was paused for longer than its lease writes afterwards finds another fence, and is
refused.
"""

import logging
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction
from django.db import connection as database
from django.db.models import Q

from approvals import pauses
from approvals.models import Pause
from connectors import breaker, calls
from connectors.contract import Refused
from connectors.shapes import LIMIT_SECONDS_MAX
from ledger import desk
from recovery.engine import alerts, faults, steps
from recovery.engine.clock import boot_seconds
from recovery.engine.sql import IS_DUE, LEASE_OVER, PLAN_RUNS, Sql, in_seconds
from recovery.models import Step, StepState
from workspaces.moves import CannotMove

logger = logging.getLogger(__name__)

CLAIMS_MAX = 5
"""A step that takes its worker down with it must not take all of them."""

MARGIN_SECONDS = 5.0
"""What a claim lasts beyond one read and one call at their limits."""

NOT_NOW_SECONDS = 2.0
"""Until a step that found its target in other hands, or a pause, looks again."""


@dataclass(frozen=True)
class Held:
    """A step in our hands, until `ends_at` by this process's own clock (never later than the
    lease).
    """

    step: Step
    ends_at: float


def lease_seconds(step: Step) -> float:
    """Long enough for a read and the call; a connector that is gone gets the longest."""
    try:
        limit = calls.operation_of(step.connection, step.operation).limit_seconds
    except Refused:
        limit = LIMIT_SECONDS_MAX
    return 2 * (limit + calls.GRACE_SECONDS) + MARGIN_SECONDS


def claim(step_id: int) -> Held | None:
    """Take the step, whose turn the order law says it is; None is "not now"."""
    step = steps.load(step_id)
    try:
        held = _claim(step)
    except CannotMove:
        return None
    except IntegrityError:
        # A partial unique index: the plan has a step in hand, or another plan has one on this
        # target.
        _wait_for_the_other(steps.load(step_id))
        return None
    if held is not None:
        faults.point("claimed")
    return held


@transaction.atomic
def _claim(step: Step) -> Held | None:
    if _must_wait(step):
        return None
    told = []
    if step.state == StepState.BLOCKED:
        told.append(steps.moved(step, StepState.READY))
    seconds = lease_seconds(step)
    ends_at = boot_seconds() + seconds  # read before the database does, so never too late
    told.append(
        steps.moved(
            step,
            StepState.CLAIMED,
            where=[IS_DUE, PLAN_RUNS],
            say={"lease_seconds": seconds},
            fence=Sql("fence + 1"),
            claims=Sql("claims + 1"),
            lease_until=in_seconds(seconds),
            wake_at=None,
        )
    )
    step.fence += 1
    step.claims += 1
    desk.say_all(step.workspace, told)
    if step.claims > CLAIMS_MAX:
        needs_human(step, f"Claimed {CLAIMS_MAX} times, and never came to an end.")
        return None
    return Held(step, ends_at)


BUSY_SQL = """
SELECT EXISTS (SELECT FROM approvals_pause WHERE workspace_id = %s AND lifted_at IS NULL),
       (SELECT count(*) FROM recovery_step
        WHERE state IN ('claimed', 'intended') AND connection_id = %s)
"""

# Close to its bound, the claims of a connection are made one after the other: whoever counts sees
# what those before it have committed. The lock ends with the claim's transaction.
ONE_BY_ONE_SQL = "SELECT pg_advisory_xact_lock(%s, %s)"
LOCK = 0xC1A1
AT_ONCE_MAX = 32
"""More workers than that do not claim over one connection in the same moment."""


def _must_wait(step: Step) -> bool:
    """Whether it is paused, or its system is left alone just now or has enough calls in hand."""
    with database.cursor() as cursor:
        cursor.execute(BUSY_SQL, [step.workspace_id, step.connection_id])
        paused, in_hand = cursor.fetchone()
        if in_hand + AT_ONCE_MAX > step.connection.concurrency:
            cursor.execute(ONE_BY_ONE_SQL, [LOCK, step.connection_id])
            cursor.execute(BUSY_SQL, [step.workspace_id, step.connection_id])
            paused, in_hand = cursor.fetchone()
    pause = pause_of(step) if paused else None
    if pause is not None:
        steps.put_off(step, NOT_NOW_SECONDS, note=f"Paused: {pause.reason}")
        return True
    connection = step.connection
    if connection.open_until is None and in_hand < connection.concurrency:
        return False
    wait = breaker.may_call(connection, under_way=in_hand)
    if wait is not None:
        steps.put_off(step, wait.seconds, note=wait.reason)
    return wait is not None


def pause_of(step: Step) -> Pause | None:
    """The pause that stands in the way of the step, if any."""
    return pauses.standing(
        step.workspace_id,
        tool=f"{step.connection.name}.{step.operation}",
        connection=step.connection.name,
    )


def _wait_for_the_other(step: Step) -> None:
    other = (
        Step.objects.filter(
            workspace_id=step.workspace_id,
            target_type=step.target_type,
            target_id=step.target_id,
        )
        .exclude(plan_id=step.plan_id)
        .filter(
            Q(state__in=["claimed", "intended", "unknown", "applied"])
            | Q(state="needs_human", was="unknown")
        )
        .select_related("plan")
        .first()
    )
    if other is not None:
        steps.put_off(step, NOT_NOW_SECONDS, note=f"Waits for case {other.plan.case_id}")


def needs_human(step: Step, why: str, **changes: Any) -> None:
    """Give the step to people, and say so; the caller holds the transaction."""
    steps.move(step, StepState.NEEDS_HUMAN, note=why, lease_until=None, wake_at=None, **changes)
    alerts.step_needs_a_person(step, why)


def take_back(step_id: int) -> bool:
    """Take a step from a worker whose lease is over; False if it is not, or somebody was faster."""
    step = steps.load(step_id)
    try:
        with transaction.atomic():
            if step.state == StepState.CLAIMED:
                _take_back_claimed(step)
            elif step.state == StepState.INTENDED:
                _take_back_intended(step)
            else:
                return False
    except CannotMove:
        return False
    return True


def _take_back_claimed(step: Step) -> None:
    """Nothing was sent, for nothing was intended."""
    if step.claims >= CLAIMS_MAX:
        needs_human(step, f"Its worker was lost {step.claims} times.", where=[LEASE_OVER])
    else:
        steps.move(
            step,
            StepState.READY,
            where=[LEASE_OVER],
            note="The worker was lost before anything was sent.",
            lease_until=None,
        )


def _take_back_intended(step: Step) -> None:
    """The call may have left until the end of the lease, so the horizon counts from here."""
    horizon = 0.0
    try:
        horizon = calls.operation_of(step.connection, step.operation).horizon_seconds
    except Refused:
        logger.warning("%s of a connector that is gone", step)
    steps.move(
        step,
        StepState.UNKNOWN,
        where=[LEASE_OVER],
        note="The worker was lost; the call may have left.",
        lease_until=None,
        wake_at=in_seconds(horizon),
    )
