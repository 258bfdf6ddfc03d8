"""Verifying: a separate read, held against the post-condition that people approved.

Only `verified` counts as restored. Where nothing can be read, the answer was a receipt and the step
ends `reported`.
"""

from typing import Any

from django.db import transaction

from connectors.contract import CannotRead, Check, Observation, Operation, Refused
from ledger import desk
from ledger.desk import Saying
from recovery.engine import claims, steps, wire
from recovery.engine.snapshots import SnapshotGone
from recovery.models import Step, StepState
from workspaces.moves import CannotMove

READS_MAX = 8
"""Of a target that cannot be read; with the pauses below about ten minutes."""

READ_SECONDS = 5.0
"""Before the second read; each further one waits twice as long."""


def verify(step_id: int) -> bool:
    """Read back an applied step; False if nothing moved."""
    return verify_loaded(steps.load(step_id))


def verify_loaded(step: Step) -> bool:
    """Read back the step as it stands in our hands; False if nothing moved."""
    if step.state != StepState.APPLIED:
        return False
    try:
        operation = wire.operation_of(step)
        if not operation.reads_back:
            return _reported(step, operation)
        return _checked(step, operation, wire.verify(step))
    except CannotRead as unreadable:
        return _later(step, f"It could not be read back: {unreadable}")
    except (Refused, SnapshotGone) as refused:
        return _differs(step, str(refused), [])
    except CannotMove:
        return False


def _checked(step: Step, operation: Operation, check: Check) -> bool:
    if check.ok:
        return _verified(step, operation, check)
    if operation.probe == "eventual" and step.probes == 0:
        return _later(step, "Not to be seen yet.", operation.horizon_seconds)
    return _differs(step, "What was read back is not what was to be restored.", check.checks)


@transaction.atomic
def _verified(step: Step, operation: Operation, check: Check) -> bool:
    ended_well(step, StepState.VERIFIED, operation, checks=check.checks)
    return True


@transaction.atomic
def _reported(step: Step, operation: Operation) -> bool:
    ended_well(step, StepState.REPORTED, operation, checks=[])
    return True


@transaction.atomic
def met_already(step: Step, operation: Operation, observation: Observation) -> None:
    """A claimed step whose post-condition a read found to hold: verified without a call."""
    ended_well(
        step,
        StepState.VERIFIED,
        operation,
        checks=[],
        note="It was already so; nothing was sent.",
        say={"already": True, "fingerprint": observation.fingerprint},
    )


def ended_well(
    step: Step,
    state: str,
    operation: Operation,
    *,
    checks: list[dict[str, Any]],
    note: str = "",
    say: dict[str, Any] | None = None,
) -> None:
    """End the step, and tell the ledger that the effect is compensated, or corrected."""
    evidence = step.evidence or {}
    told = steps.moved(
        step,
        state,
        note=note,
        say={"ok": True, "checks": checks} | (say or {}),
        evidence=(evidence | {"checks": checks}) or None,
        lease_until=None,
        wake_at=None,
    )
    action = step.effect.action
    compensated = Saying(
        "action.compensated",
        action.run.run,
        action.action,
        {
            "positions": [step.effect.position],
            "outcome": "corrected" if operation.reversibility == "irreversible" else "compensated",
            "verified": state == StepState.VERIFIED,
            "plan": steps.run_of(step.plan),
            "step": steps.action_of(step),
        },
    )
    desk.say_all(step.workspace, [told, compensated])


def _later(step: Step, note: str, seconds: float = 0.0) -> bool:
    if step.probes + 1 >= READS_MAX:
        return _differs(step, note, [])
    pause = seconds or READ_SECONDS * 2**step.probes
    steps.put_off(step, pause, note=note, probes=step.probes + 1)
    return False


@transaction.atomic
def _differs(step: Step, why: str, checks: list[dict[str, Any]]) -> bool:
    try:
        claims.needs_human(
            step, why, say={"checks": checks}, evidence=(step.evidence or {}) | {"checks": checks}
        )
    except CannotMove:
        return False
    return True
