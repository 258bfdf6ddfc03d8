"""Where the protocol cannot go on: each way in which a step leaves it, or is brought back to it.

A step in hand that cannot be sent is abandoned. One whose worker is gone is taken back. One whose
answer was lost is probed. One that was applied and not read back is read again. Each verb says
whether anything moved, so that its plan may go on.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError, InterfaceError, connection, transaction
from django.db.models import Value

from connectors import calls
from connectors.contract import CannotRead, Check, Finding, Observation, Operation, Refused
from ledger import desk_events
from recovery.engine import approved_calls, outbound_calls, preconditions, protocol, steps
from recovery.engine.approved_calls import Mismatch
from recovery.engine.outbound_calls import SnapshotGone
from recovery.engine.preconditions import (
    AlreadyRestored,
    Drifted,
    MayProceed,
    NotShownYet,
    TargetUnreadable,
    Verdict,
)
from recovery.engine.protocol import CLAIMS_MAX, StepEnding
from recovery.engine.queries import LEASE_OVER, PLAN_RUNS, Fragment, in_seconds
from recovery.models import PlanState, Step, StepState
from workspaces.clock import Clock
from workspaces.moves import CannotMove

logger = logging.getLogger(__name__)

UNREADABLE_SECONDS = 10.0
"""Until a target that could not be read is tried again."""

UNREADABLE_MAX = 20
"""Then a person is asked: about an hour, for the pauses grow."""


NOT_SHOWN = "What was done to it last may not show there yet."


def abandon(step: Step, found: Verdict) -> bool:
    """By what was found at its target."""
    match found:
        case AlreadyRestored(operation, observation):
            _met_already(step, operation, observation)
        case NotShownYet(seconds):
            steps.release(step, seconds, note=NOT_SHOWN)
            return False
        case Drifted(diff):
            _drifted(step, diff)
        case Mismatch(why, diff):
            _give_up(step, why, **({"evidence": {"diff": diff}} if diff else {}))
        case TargetUnreadable(why):
            return _target_unreadable(step, why)
        case MayProceed():
            return False
    return True


def lease_too_short(step: Step) -> bool:
    """Shorter than the call may last; or the step was no longer ours."""
    steps.release(step, preconditions.LOOK_AGAIN_SECONDS, note="The lease was too short.")
    return False


def release_unsent(step: Step, why: str) -> None:
    """Release the step if no intent was committed, so that nobody waits for our lease. Whether one
    was, the row knows: this is a compare-and-swap like any other.
    """
    try:
        steps.release(step, 0.0, note=why)
    except (CannotMove, DatabaseError, InterfaceError) as failure:
        logger.info("step %d stays as it is: %s", step.pk, failure)
        connection.close_if_unusable_or_obsolete()


@transaction.atomic
def _met_already(step: Step, operation: Operation, observation: Observation) -> None:
    """What it would have added to the sums of rules is released, unless a try of ours did it."""
    tried = preconditions.tries_under(step).exists()
    protocol.met_already(step, operation, observation, tried=tried or step.tries > 0)
    if not tried:
        steps.release_sums_of_no_effect([step])


@transaction.atomic
def _drifted(step: Step, diff: list[dict[str, object]]) -> None:
    note = "Changed since the agent wrote it."
    if preconditions.tries_under(step).in_doubt().exists():
        # That may be what our own try has left, so that a person says first whether it happened.
        steps.needs_human(step, note, data={"drift": diff}, drift=diff)
        return
    steps.move(
        step,
        StepState.DRIFTED,
        note=note,
        data={"drift": diff},
        drift=diff,
        lease_until=None,
    )
    steps.step_needs_a_person(step, note)


def _target_unreadable(step: Step, why: str) -> bool:
    """Release the step to be tried again later; after UNREADABLE_MAX times a person is asked."""
    note = f"Its target could not be read: {why}"
    if step.probes + 1 >= UNREADABLE_MAX:
        _give_up(step, note)
    else:
        seconds = min(UNREADABLE_SECONDS * 2**step.probes, 300.0)
        steps.release(step, seconds, note=note, probes=step.probes + 1)
    return False


# Reclaiming a step from a worker that is gone.


def reclaim(step_id: int) -> bool:
    """From a worker whose lease is over; False if it is not, or somebody was faster."""
    step = steps.load(step_id)
    try:
        with transaction.atomic():
            if step.state == StepState.CLAIMED:
                _reclaim_claimed(step)
            elif step.state == StepState.INTENDED:
                _reclaim_intended(step)
            else:
                return False
    except CannotMove:
        return False
    return True


def _reclaim_claimed(step: Step) -> None:
    """Nothing was sent, for nothing was intended."""
    if step.claims >= CLAIMS_MAX:
        steps.needs_human(step, f"Its worker was lost {step.claims} times.", where=[LEASE_OVER])
    else:
        steps.move(
            step,
            StepState.READY,
            where=[LEASE_OVER],
            note="The worker was lost before anything was sent.",
            lease_until=None,
        )


def _reclaim_intended(step: Step) -> None:
    """The call may have left until the end of the lease, so the horizon counts from here."""
    _lose(step, "The worker was lost; the call may have left.", where=[LEASE_OVER])


def lose_in_restore(step: Step, note: str) -> None:
    """A call that was intended when the backup was taken: what became of it is to be found out. It
    may have left just before the desk went down, so its limit counts from here.
    """
    _lose(step, note, on_its_way=True)


def _lose(
    step: Step, note: str, *, on_its_way: bool = False, where: Iterable[Fragment] = ()
) -> None:
    """Unknown, and probed once the call would show; of a connector that is gone at once."""
    seconds = 0.0
    try:
        operation = calls.operation_of(step.connection, step.operation)
        seconds = operation.horizon_seconds + (operation.limit_seconds if on_its_way else 0.0)
    except Refused:
        logger.warning("%s of a connector that is gone", step)
    due = in_seconds(seconds)
    steps.move(step, StepState.UNKNOWN, where=where, note=note, lease_until=None, wake_at=due)


# Probes: finding out whether a call whose answer was lost took effect.
#
# Found is found. Absence is proven only by a probe made after the call's limit and the connector's
# horizon, which is when the step is due; and it leads to another try only where something keeps
# that from doing it twice. Otherwise a person decides, with evidence.

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
        operation = outbound_calls.operation_of(step)
    except Refused as refused:
        return _give_up(step, str(refused))
    tries = list(preconditions.tries_under(step).order_by("intended_at"))
    kept = next((one for one in tries if one.outcome == "applied"), None)
    if kept is not None:
        return _present(step, kept.evidence or {}, "Its answer had come after all.")
    if not tries:
        return _absent(step, operation, "It is known that no try of it had an effect.")
    return _look_for(step, operation, tries[0].intended_at)


def _look_for(step: Step, operation: Operation, sent_at: datetime) -> bool:
    if elsewhere := approved_calls.reads_elsewhere(step):
        return _give_up(step, elsewhere.why, evidence={"diff": elsewhere.diff})
    if operation.probe == "none":
        return _cannot_tell(step, operation, {})
    try:
        finding = outbound_calls.probe(step, sent_at)
    except SnapshotGone as gone:  # a probe compares with it
        return _give_up(step, f"Whether it happened cannot be found out from here. {gone}")
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
    protocol.mark_applied(step, evidence=evidence, data={"evidence": evidence}, note=note)
    return True


@transaction.atomic
def _absent(step: Step, operation: Operation, note: str) -> bool:
    moved = _after_absence(step, operation, note)
    preconditions.rule_out_tries(step)
    return moved


def _after_absence(step: Step, operation: Operation, note: str) -> bool:
    if not operation.may_repeat:
        return _give_up(step, f"{note} It is not tried again by itself.")
    if not preconditions.window_is_open(step, operation):
        return _give_up(step, f"{note} The provider no longer remembers the key.")
    return _again(step, note)


@transaction.atomic
def _cannot_tell(step: Step, operation: Operation, evidence: dict[str, object]) -> bool:
    """Without a probe only the provider itself can tell, where it remembers our key. Of a stopped
    plan it is not asked again, so that a person has to say.
    """
    asks = operation.idempotency == "native_key" and step.plan.state == PlanState.RUNNING
    if asks and preconditions.window_is_open(step, operation):
        note = "The provider remembers the key: asking again cannot do it twice."
        return _again(step, note, where=[PLAN_RUNS])
    why = "Whether it happened cannot be found out from here: look, and say what you found."
    return _give_up(step, why, evidence=evidence or None)


def _again(step: Step, note: str, where: Iterable[Fragment] = ()) -> bool:
    if step.tries >= protocol.TRIES_MAX:
        return _give_up(step, f"{note} It was tried {step.tries} times.")
    moved = steps.move_unrecorded(step, StepState.READY, note=note, where=where, wake_at=None)
    desk_events.record_all(step.workspace, [steps.no_effect_draft(step, note), moved])
    return True


@transaction.atomic
def _give_up(step: Step, why: str, **changes: Any) -> bool:
    steps.needs_human(step, why, **changes)
    return True


# Reading back once more.


READS_MAX = 8
"""Of a target that cannot be read; with the pauses below about ten minutes."""

READ_SECONDS = 5.0
"""Before the second read; each further one waits twice as long."""


def verify(step_id: int) -> bool:
    """Read back an applied step; False if nothing moved."""
    step = steps.load(step_id)
    if step.state != StepState.APPLIED:
        return False
    try:
        return _read_back(step, outbound_calls.operation_of(step))
    except CannotRead as why:
        return cannot_read_back(step, str(why))
    except (Refused, SnapshotGone) as refused:
        return _give_up_verifying(step, str(refused), [])
    except CannotMove:
        return False


def _read_back(step: Step, operation: Operation) -> bool:
    if not operation.reads_back:
        return _end_one(StepEnding(step, operation, []))
    if elsewhere := approved_calls.reads_elsewhere(step):
        return _not_read_back(step, operation, elsewhere)
    check = outbound_calls.verify(step)
    if not check.ok:
        return reads_otherwise(step, operation, check)
    return _end_one(StepEnding(step, operation, check.checks))


def _not_read_back(step: Step, operation: Operation, elsewhere: Mismatch) -> bool:
    """Its connection leads elsewhere. A person has to say whether it happened, and where they have
    said so, their word is its receipt.
    """
    person = (step.evidence or {}).get("person") or {}
    if person.get("outcome") == "applied":
        return _end_one(StepEnding(step, replace(operation, reads_back=False), []))
    evidence = (step.evidence or {}) | {"diff": elsewhere.diff}
    return _give_up(step, elsewhere.why, evidence=evidence)


def cannot_read_back(step: Step, why: str) -> bool:
    """The call was made, and its target cannot be read just now."""
    return _later(step, f"It could not be read back: {why}")


def reads_otherwise(step: Step, operation: Operation, check: Check) -> bool:
    """What was read is not what was to be restored; or not yet."""
    if operation.probe == "eventual" and (step.probes == 0 or _may_be_on_its_way(step, operation)):
        return _later(step, "Not to be seen yet.", operation.horizon_seconds)
    return _give_up_verifying(
        step, "What was read back is not what was to be restored.", check.checks
    )


def _may_be_on_its_way(step: Step, operation: Operation) -> bool:
    """Whether the horizon since the answer is not over, however often a read has failed in it."""
    horizon = Value(timedelta(seconds=operation.horizon_seconds))
    return Step.objects.filter(pk=step.pk, moved_at__gt=Clock() - horizon).exists()


@transaction.atomic
def _end_one(one: StepEnding) -> bool:
    return bool(protocol.end_all([one], one.state))


def _later(step: Step, note: str, seconds: float = 0.0) -> bool:
    if step.probes + 1 >= READS_MAX:
        return _give_up_verifying(step, note, [])
    pause = seconds or READ_SECONDS * 2**step.probes
    steps.put_off(step, pause, note=note, probes=step.probes + 1)
    return False


@transaction.atomic
def _give_up_verifying(step: Step, why: str, checks: list[dict[str, Any]]) -> bool:
    try:
        steps.needs_human(
            step, why, data={"checks": checks}, evidence=(step.evidence or {}) | {"checks": checks}
        )
    except CannotMove:
        return False
    return True
