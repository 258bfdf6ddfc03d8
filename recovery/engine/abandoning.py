"""Leaving: how a step in hand ends that cannot be sent; what was approved is not what is found.

Each verb says whether anything moved, so that its plan may go on.
"""

import logging
from collections.abc import Callable

from django.db import DatabaseError, InterfaceError, connection, transaction

from recovery.engine import claims, steps, verifying
from recovery.engine.preconditions import AlreadyRestored, Drifted, Finding, GoOn, Unreadable, Void
from recovery.models import Step, StepState
from workspaces.moves import CannotMove

logger = logging.getLogger(__name__)

UNREADABLE_SECONDS = 10.0
"""Until a target that could not be read is tried again."""

UNREADABLE_MAX = 20
"""Then a person is asked: about an hour, for the pauses grow."""


def by(step: Step, verb: Callable[[], bool]) -> bool:
    """Leave by a verb; False, too, if the step was taken from us meanwhile."""
    try:
        return verb()
    except CannotMove as lost:
        logger.info("step %d was taken from us: %s", step.pk, lost)
        return False


def left(step: Step, found: Finding) -> bool:
    """By what was found at its target."""
    match found:
        case AlreadyRestored(operation, observation):
            verifying.met_already(step, operation, observation)
        case Drifted(diff):
            _drifted(step, diff)
        case Void(why):
            _void(step, why)
        case Unreadable(why):
            return _unreadable(step, why)
        case GoOn():
            return False
    return True


def too_late(step: Step) -> bool:
    """Its lease was too short for the call, or it was no longer ours."""
    steps.release(step, claims.SECONDS, note="The lease was too short.")
    return False


def give_back(step: Step) -> None:
    """If no intent was committed, nobody need wait for our lease; whether one was, the row itself
    knows, so this is a compare and swap like any other."""
    try:
        steps.release(step, 0.0, note="The database went away before anything was sent.")
    except (CannotMove, DatabaseError, InterfaceError) as failure:
        logger.info("step %d stays as it is: %s", step.pk, failure)
        connection.close_if_unusable_or_obsolete()


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
    steps.step_needs_a_person(step, note)


@transaction.atomic
def _void(step: Step, why: str) -> None:
    claims.needs_human(step, why)


def _unreadable(step: Step, why: str) -> bool:
    """Nothing was sent, and the connection is away: later, and not for ever."""
    note = f"Its target could not be read: {why}"
    if step.probes + 1 >= UNREADABLE_MAX:
        _void(step, note)
    else:
        seconds = min(UNREADABLE_SECONDS * 2**step.probes, 300.0)
        steps.release(step, seconds, note=note, probes=step.probes + 1)
    return False
