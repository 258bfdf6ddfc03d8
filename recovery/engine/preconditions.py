"""Checks inside the lease: what is found at the target before anything is sent.

What is done is read after the claim, under it, and never before.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db.models import QuerySet, Value

from connectors import normalization
from connectors.contract import (
    CannotRead,
    CannotRestore,
    FieldDiff,
    Observation,
    Operation,
    Refused,
)
from recovery.engine import outbound_calls
from recovery.engine.outbound_calls import SnapshotGone
from recovery.models import Step, StepAttempt
from workspaces.clock import Clock


@dataclass(frozen=True)
class GoOn:
    """Nothing stands in the way. `observation` is what a conditional write rests on."""

    operation: Operation
    observation: Observation | None


@dataclass(frozen=True)
class AlreadyRestored:
    """The post-condition holds already: success without a call."""

    operation: Operation
    observation: Observation


@dataclass(frozen=True)
class Drifted:
    """Somebody changed the target after the agent did; field by field."""

    diff: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Void:
    """What was approved cannot be done as it was approved, or not by us alone."""

    why: str


@dataclass(frozen=True)
class Unreadable:
    """Nothing is known of the target now; later perhaps."""

    why: str


Finding = GoOn | AlreadyRestored | Drifted | Void | Unreadable


def may_be_done(step: Step) -> Operation | Void:
    """What is known before anything is read: the operation, or why it must not be tried."""
    try:
        operation = outbound_calls.operation_of(step)
    except Refused as refused:
        return Void(str(refused))
    doubt = earlier_try(step, operation)
    return Void(doubt) if doubt else operation


def seen(step: Step, operation: Operation, read: Callable[[], Observation | None]) -> Finding:
    """What the read says of the step, or that nothing can be said."""
    try:
        observation = read()
        return GoOn(operation, None) if observation is None else _held(step, operation, observation)
    except CannotRestore as refused:
        return Void(str(refused))
    except CannotRead as unreadable:
        return Unreadable(str(unreadable))
    except (Refused, SnapshotGone) as refused:
        return Void(str(refused))


def _held(step: Step, operation: Operation, observation: Observation) -> Finding:
    if outbound_calls.satisfied(step, observation):
        return AlreadyRestored(operation, observation)
    differences = outbound_calls.drifted(step, observation)
    if differences:
        return Drifted([_told(step, one) for one in differences])
    return GoOn(operation, observation)


def earlier_try(step: Step, operation: Operation) -> str:
    """Why an earlier try under this key, in whatever plan, forbids one more; or nothing.

    Asked before the target is read, which may take long, and again in the intent's transaction.
    """
    if operation.idempotency == "native_key":
        if not window_is_open(step, operation):
            return "The provider no longer remembers the first try: a second could do it twice."
        return ""
    if not operation.may_repeat and tries_under(step.workspace_id, step.key).exists():
        return "It was tried before, and nothing would keep a second try from doing it twice."
    return ""


def tries_under(workspace_id: int, key: str) -> QuerySet[StepAttempt]:
    """Tries under this key that may have had an effect, whatever plan they belong to."""
    tried = StepAttempt.objects.filter(step__workspace_id=workspace_id, key=key)
    return tried.exclude(outcome="no_effect")


def window_is_open(step: Step, operation: Operation) -> bool:
    """Whether the provider still remembers the first try under this key when a call would end."""
    if operation.window_seconds is None:
        return True
    reach = timedelta(seconds=operation.window_seconds - operation.limit_seconds)
    too_old = tries_under(step.workspace_id, step.key).filter(
        intended_at__lt=Clock() - Value(reach)
    )
    return not too_old.exists()


def _told(step: Step, difference: FieldDiff) -> dict[str, Any]:
    before = outbound_calls.before_of(step.effect)
    name = difference.field
    was = before.get(name) if name and isinstance(before, dict) else (None if name else before)
    return {
        "field": name,
        "was": was if isinstance(was, dict | list | str | int | float | bool) else None,
        "agent_wrote": normalization.value(difference.expected),
        "now": normalization.value(difference.actual),
    }
