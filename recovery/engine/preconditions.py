"""What must hold before a step goes on: may it be claimed now, and may it be sent.

A claim waits for pauses, for a system that is left alone or has enough calls in hand, and for
another plan's step on the same target. Under the claim the target is read, and never before.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, Max, OuterRef, Q, Value
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Coalesce

from approvals import pauses
from approvals.models import Pause
from connectors import calllog, normalization
from connectors.contract import (
    CannotRead,
    CannotRestore,
    FieldDiff,
    Observation,
    Operation,
    Refused,
)
from ledger.models import Action, ActionState, AttemptState
from recovery.engine import approved_calls, outbound_calls, steps
from recovery.engine.approved_calls import Mismatch
from recovery.engine.outbound_calls import SnapshotGone
from recovery.engine.queries import BUSY_SQL, ONE_BY_ONE_SQL, OTHER_ON_TARGET_SQL, ask
from recovery.models import Step, StepAttempt
from recovery.models.plans import ABSENT, StepAttemptQuerySet
from workspaces.clock import Clock, database_time

# Before the claim.

LOOK_AGAIN_SECONDS = 2.0
PAUSED = "Paused: "
"""Begins the note of a step that a pause holds."""
"""Until a step that found its target in other hands, or a pause, looks again."""

LEFT_ALONE_SECONDS = 20.0
"""Until a step whose system is left alone looks again, at the latest: somebody may have mended it,
with other credentials or by trying it on its page.
"""

CLAIM_LOCK = 0xC1A1
"""The space of advisory locks in which a connection's id is its own lock."""

AT_ONCE_MAX = 32
"""More workers than that do not claim over one connection in the same moment."""


def claimable(wanted: Sequence[Step]) -> list[Step]:
    """Those that need not wait: for a pause to be lifted, or for their system."""
    concurrency = {step.connection_id: step.connection.concurrency for step in wanted}
    busy = _busy(concurrency)
    close = [pk for pk, most in concurrency.items() if busy[pk][1] + AT_ONCE_MAX > most]
    for pk in sorted(close):
        ask(ONE_BY_ONE_SQL, [CLAIM_LOCK, pk])
    if close:
        busy = _busy(concurrency)
    free = []
    for step in wanted:
        paused, in_hand = busy[step.connection_id]
        if not _must_wait(step, in_hand, paused=paused):
            busy[step.connection_id] = paused, in_hand + 1
            free.append(step)
    return free


def _busy(connections: Collection[int]) -> dict[int, tuple[bool, int]]:
    """Of each connection whether there is a pause, and how many steps over it are in hand."""
    found = ask(BUSY_SQL, [list(connections)])
    return {pk: (paused, count) for pk, paused, count in found}


def held_by(pause: Pause) -> str:
    """The note of a step that a pause holds."""
    return f"{PAUSED}{pause.reason}"


def _must_wait(step: Step, in_hand: int, *, paused: bool) -> bool:
    """Whether it is paused, or its system is left alone just now or has enough calls in hand."""
    pause = pause_of(step) if paused else None
    if pause is not None:
        steps.put_off(step, LOOK_AGAIN_SECONDS, note=held_by(pause))
        return True
    connection = step.connection
    if connection.open_until is None and in_hand < connection.concurrency:
        return False
    wait = calllog.may_call(connection, under_way=in_hand)
    if wait is not None:
        steps.put_off(step, min(wait.seconds, LEFT_ALONE_SECONDS), note=wait.reason)
    return wait is not None


def release_trials(free: Sequence[Step], *, going: Sequence[Step] = ()) -> None:
    """Free the trial calls of open circuits that were taken for steps which do not call after all;
    those that are `going` may need them.
    """
    over = {step.connection_id for step in going}
    for step in free:
        if step.connection_id not in over:
            calllog.release_trial(step.connection)


def pause_of(step: Step) -> Pause | None:
    """The pause that stands in the way of the step, if any."""
    return pauses.standing(
        step.workspace_id,
        tool=f"{step.connection.name}.{step.operation}",
        connections=[step.connection.name],
    )


def wait_for_the_other(step: Step) -> None:
    """Let it look again in a while, and say for whom it waits."""
    values = [step.workspace_id, step.target_type, step.target_id, step.plan_id]
    for (case_id,) in ask(OTHER_ON_TARGET_SQL, values):
        steps.put_off(step, LOOK_AGAIN_SECONDS, note=f"Waits for case {case_id}")


# Under the claim.


@dataclass(frozen=True)
class MayProceed:
    """Nothing stands in the way. `observation` is what a conditional write rests on."""

    operation: Operation
    observation: Observation | None


@dataclass(frozen=True)
class AlreadyRestored:
    """The post-condition holds already: success without a call."""

    operation: Operation
    observation: Observation


@dataclass(frozen=True)
class NotShownYet:
    """It does not look as the agent left it, and for so long that may only not show yet."""

    seconds: float


@dataclass(frozen=True)
class Drifted:
    """Somebody changed the target after the agent did; field by field."""

    diff: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class TargetUnreadable:
    """Nothing is known of the target now; later perhaps."""

    why: str


Verdict = MayProceed | AlreadyRestored | NotShownYet | Drifted | Mismatch | TargetUnreadable


def check_operation(step: Step) -> Operation | Mismatch:
    """What is known before anything is read: the operation, or why it must not be tried, or why a
    look would say nothing: that another system is as it should be puts nothing right in this one.
    """
    try:
        operation = outbound_calls.operation_of(step)
    except Refused as refused:
        return Mismatch(str(refused))
    doubt = earlier_try(step, operation)
    return Mismatch(doubt) if doubt else approved_calls.reads_elsewhere(step) or operation


def check_target(
    step: Step, operation: Operation, read: Callable[[], Observation | None]
) -> Verdict:
    """What the read says of the step, or that nothing can be said."""
    try:
        observation = read()
        return (
            MayProceed(operation, None)
            if observation is None
            else _compared(step, operation, observation)
        )
    except CannotRestore as refused:
        return Mismatch(str(refused))
    except CannotRead as unreadable:
        return TargetUnreadable(str(unreadable))
    except (Refused, SnapshotGone) as refused:
        return Mismatch(str(refused))


def _compared(step: Step, operation: Operation, observation: Observation) -> Verdict:
    found = _held_against(step, operation, observation)
    if isinstance(found, MayProceed):
        return found
    seconds = seconds_until_shown(step.effect.action, operation)
    seconds = max(seconds, _seconds_until_ours_shows(step, operation))
    return NotShownYet(seconds) if seconds > 0 else found


def _held_against(
    step: Step, operation: Operation, observation: Observation
) -> MayProceed | AlreadyRestored | Drifted:
    if outbound_calls.satisfied(step, observation):
        return AlreadyRestored(operation, observation)
    differences = outbound_calls.drifted(step, observation)
    if differences:
        return Drifted([_drift_told(step, one) for one in differences])
    return MayProceed(operation, observation)


def seconds_until_shown(action: Action, operation: Operation) -> float:
    """For how many seconds a system that shows calls late may not show the agent's own: until then
    a target that looks otherwise than the agent left it says nothing.
    """
    if operation.probe != "eventual":
        return 0.0
    return (shown_by(action, operation) - database_time()).total_seconds()


def _seconds_until_ours_shows(step: Step, operation: Operation) -> float:
    """The same of what our other steps of the case did to the target, newer ones as a rule."""
    if operation.probe != "eventual":
        return 0.0
    ours = StepAttempt.objects.filter(
        step__plan__case=step.plan.case_id,
        step__target_type=step.target_type,
        step__target_id=step.target_id,
    )
    others = ours.exclude(step=step.pk).with_possible_effect()
    over = others.aggregate(at=Max(Coalesce("answered_at", "step__moved_at")))["at"]
    if over is None:
        return 0.0
    age = (database_time() - over).total_seconds()
    return float(operation.horizon_seconds - age)


def shown_by(action: Action, operation: Operation) -> datetime:
    """Until when the tries of an agent's call, if they had an effect, show it: by the horizon after
    they were over. Of one whose outcome its agent did not tell, that is our limit after its begin,
    or what is known, for an agent may have waited longer.
    """
    told = Q(state__in=(AttemptState.SUCCEEDED, AttemptState.NO_EFFECT))
    untold = None if action.settled_by or action.state != ActionState.SUCCEEDED else ~told
    tries = action.attempts.aggregate(
        begun=Max("started_at", filter=untold), over=Max("finished_at")
    )
    begun, over = tries["begun"], tries["over"] or action.finished_at
    if begun is None and (over is None or action.state != ActionState.SUCCEEDED):
        begun = action.started_at or over or database_time()
    limit = begun and begun + timedelta(seconds=operation.limit_seconds)
    known: datetime = max(filter(None, (limit, over)))
    return known + timedelta(seconds=operation.horizon_seconds)


FORGOTTEN = "It may have been sent before: the ledger here lost entries since the run began"


def earlier_try(step: Step, operation: Operation) -> str:
    """Why an earlier try under this key, in whatever plan, forbids one more; or nothing.

    Asked before the target is read, which may take long, and again in the intent's transaction.
    """
    if steps.was_done_before(step):
        return steps.NOTHING_MORE
    if operation.idempotency in {"native_key", "marker", "none"} and _key_is_anothers(step):
        return "What it would be known by was used for another target of the same call."
    if operation.idempotency == "native_key":
        return _native_try(step, operation)
    if operation.may_repeat:
        return ""
    if _was_tried(step):
        return "It was tried before, and nothing would keep a second try from doing it twice."
    doubt = _may_be_forgotten(step, operation)
    return f"{FORGOTTEN}, and nothing would keep a second try from doing it twice." if doubt else ""


def _native_try(step: Step, operation: Operation) -> str:
    if not window_is_open(step, operation):
        return "The provider no longer remembers the first try: a second could do it twice."
    doubt = operation.window_seconds is not None and _may_be_forgotten(step, operation)
    return f"{FORGOTTEN}, and the provider would no longer remember it." if doubt else ""


def further_try(step: Step, operation: Operation) -> str:
    """Why a further try that a person authorised in an earlier plan forbids one under the first key
    of a new plan, where only its own key or marker would tell that it is there; or nothing.

    Asked in the intent's transaction alone: what was done the look may have found done. What puts
    a state back exactly, and had just been looked for and was not there, may be put back twice.
    """
    if operation.idempotency not in {"native_key", "marker"} or step.generation > 1:
        return ""
    puts_back = operation.reversibility == "exact" and operation.probe != "eventual"
    if puts_back and outbound_calls.a_look_tells(step, operation):
        return ""
    if not _tried_alike(step).not_ruled_out().exclude(key=step.key).exists():
        return ""
    return "It was tried before under another key, so a second try could do it twice."


def tries_under(step: Step) -> StepAttemptQuerySet:
    """Tries of the step's target under its key that may have had an effect, whatever plan they
    belong to.
    """
    return _keyed(step).filter(_on_its_target(step, "step"))


def _keyed(step: Step) -> StepAttemptQuerySet:
    tried = StepAttempt.objects.filter(step__workspace_id=step.workspace_id, key=step.key)
    return tried.with_possible_effect()


def _on_its_target(step: Step, what: str) -> Q:
    return Q(**{f"{what}__target_type": step.target_type, f"{what}__target_id": step.target_id})


def _key_is_anothers(step: Step) -> bool:
    """Whether another target was tried under the step's key: a key holds the position of the
    effect, which may be another since its call was told of once more.
    """
    return _keyed(step).exclude(_on_its_target(step, "step")).exists()


def rule_out_tries(step: Step) -> None:
    """What was tried under the step's key without an answer was looked for, and is not there. The
    caller has moved the step or holds its lock, in the same transaction.
    """
    doubtful = tries_under(step).in_doubt().values_list("pk", flat=True)
    # By their own rows: of what is answered in this moment the answer stays.
    StepAttempt.objects.in_doubt().filter(pk__in=list(doubtful)).update(outcome=ABSENT)


def _was_tried(step: Step) -> bool:
    """Whether this very call may have been made for the effect: under this key, or under one for a
    further try that a person authorised in an earlier plan, of which a new plan's first key knows
    nothing. Where they have authorised one more of this step, only its own key counts.
    """
    if tries_under(step).exists():
        return True
    return step.generation == 1 and _tried_alike(step).exists()


def _tried_alike(step: Step) -> StepAttemptQuerySet:
    """Tries of this very call for the effect by other steps, that may have had an effect. What was
    told of the call since may have moved it: then the row that they were for is no longer of this
    target.
    """
    moved = Q(step__effect__withdrawn=True) | ~_on_its_target(step, "step__effect")
    tried = StepAttempt.objects.filter(
        Q(step__effect=step.effect_id) | moved,
        _on_its_target(step, "step"),
        step__effect__action=step.effect.action_id,
        step__connection=step.connection_id,
        step__operation=step.operation,
        step__args=step.args,
    )
    return tried.exclude(step=step.pk).with_possible_effect()


def _may_be_forgotten(step: Step, operation: Operation) -> bool:
    """Whether an earlier plan, and that it sent this, may be among what the ledger here lost since
    the run began: no look at the target would tell, and nobody has authorised one more. A plan that
    was there when it was lost has that among its tries (recovery/restoration.py).
    """
    if outbound_calls.a_look_tells(step, operation) or step.generation > 1:
        return False
    began = "effect__action__run__started_at"
    lost = pauses.lost_since(began).filter(paused_at__lte=OuterRef("plan__drafted_at"))
    rows = Step.objects.filter(Exists(lost), pk=step.pk)
    if operation.idempotency == "native_key":
        rows = rows.filter(**{f"{began}__lt": _remembered_since(operation)})
    return rows.exists()


def window_is_open(step: Step, operation: Operation) -> bool:
    """Whether the provider still remembers the first try under this key when a call would end."""
    if operation.window_seconds is None:
        return True
    return not tries_under(step).filter(intended_at__lt=_remembered_since(operation)).exists()


def _remembered_since(operation: Operation) -> CombinedExpression:
    reach = (operation.window_seconds or 0) - operation.limit_seconds
    return Clock() - Value(timedelta(seconds=reach))


def _drift_told(step: Step, difference: FieldDiff) -> dict[str, Any]:
    before = outbound_calls.before_of(step.effect)
    name = difference.field
    was = before.get(name) if name and isinstance(before, dict) else (None if name else before)
    return {
        "field": name,
        "was": was if isinstance(was, dict | list | str | int | float | bool) else None,
        "agent_wrote": normalization.value(difference.expected),
        "now": normalization.value(difference.actual),
    }
