"""Probes: finding out whether a call whose answer was lost took effect.

Found is found. Absence is proven only by a probe made after the call's limit and the connector's
horizon, which is when the step is due; and it leads to another try only where something keeps that
from doing it twice. Otherwise a person decides, with evidence.
"""

from typing import Any

from django.db import transaction

from connectors.contract import Finding, Operation, Refused
from ledger import desk
from recovery.engine import checks, claims, settle, steps, wire
from recovery.models import Step, StepState
from workspaces.moves import CannotMove

PROBES_MAX = 6
"""With the pauses below about five minutes, then a person is asked."""

PROBE_SECONDS = 5.0
"""Before the second probe; each further one waits twice as long."""


def probe(step_id: int) -> bool:
    """Probe once for an unknown step; False if nothing moved."""
    step = steps.load(step_id)
    if step.state != StepState.UNKNOWN:
        return False
    try:
        return _probe(step)
    except CannotMove:
        return False


def _probe(step: Step) -> bool:
    try:
        operation = wire.operation_of(step)
    except Refused as refused:
        return _give_up(step, str(refused))
    tries = list(checks.tries_under(step.workspace_id, step.key).order_by("intended_at"))
    kept = next((one for one in tries if one.outcome == "applied"), None)
    if kept is not None:
        return _present(step, kept.evidence or {}, "Its answer had come after all.")
    if not tries:
        return _absent(step, operation, "It is known that nothing was sent.")
    if operation.probe == "none":
        return _cannot_tell(step, operation, {})
    finding = wire.probe(step, tries[0].intended_at)
    return _found(step, operation, finding)


def _found(step: Step, operation: Operation, finding: Finding) -> bool:
    if finding.found == "present":
        return _present(step, finding.evidence, "Found by a probe.")
    if finding.found == "absent":
        return _absent(step, operation, "A probe shows that it did not happen.")
    if step.probes + 1 < PROBES_MAX:
        pause = PROBE_SECONDS * 2**step.probes
        steps.put_off(step, pause, note="Not found out yet.", probes=step.probes + 1)
        return False
    return _cannot_tell(step, operation, finding.evidence)


@transaction.atomic
def _present(step: Step, evidence: dict[str, object], note: str) -> bool:
    settle.applied(step, evidence=evidence, say={"evidence": evidence}, note=note)
    return True


@transaction.atomic
def _absent(step: Step, operation: Operation, note: str) -> bool:
    if not operation.may_repeat:
        return _give_up(step, f"{note} It is not tried again by itself.")
    if not checks.window_is_open(step, operation):
        return _give_up(step, f"{note} The provider no longer remembers the key.")
    return _again(step, note)


@transaction.atomic
def _cannot_tell(step: Step, operation: Operation, evidence: dict[str, object]) -> bool:
    """Without a probe only the provider itself can tell, where it remembers our key."""
    if operation.idempotency == "native_key" and checks.window_is_open(step, operation):
        return _again(step, "The provider remembers the key: asking again cannot do it twice.")
    why = "Whether it happened cannot be found out from here: look, and say what you found."
    return _give_up(step, why, evidence=evidence or None)


def _again(step: Step, note: str) -> bool:
    if step.tries >= settle.TRIES_MAX:
        return _give_up(step, f"{note} It was tried {step.tries} times.")
    told = steps.moved(step, StepState.READY, note=note, wake_at=None)
    desk.say_all(step.workspace, [steps.refused(step, note), told])
    return True


@transaction.atomic
def _give_up(step: Step, why: str, **changes: Any) -> bool:
    claims.needs_human(step, why, **changes)
    return True
