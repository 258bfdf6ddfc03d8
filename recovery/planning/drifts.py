"""Drifts: whether targets still look as the agent left them, read now for the page that asks.

The engine looks again inside each step's lease; what is found here only helps people to decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

from django.db import connection, connections
from msgspec import UNSET

from connectors import calllog, calls, normalization
from connectors.contract import (
    CannotRead,
    CannotRestore,
    FieldDiff,
    Observation,
    Recorded,
    Refused,
    drift,
)
from ledger.desk_events import masking_key
from ledger.models import Compensated, Effect
from recovery.engine import outbound_calls
from recovery.engine.outbound_calls import expected_of, target_of
from recovery.planning.drafting import DraftStep, DriftState, Place
from workspaces.formatting import count

PARALLEL_MAX = 8
OBSERVED_MAX = 200
UNDONE_MAX = 1_000
SECONDS_MAX = 20.0
"""A page waits no longer; what was not read by then is said to be unread."""


def look(steps: Sequence[DraftStep], *, most: int) -> dict[Place, Recorded]:
    """Mark each step with what is found, and give back the states that were read, `most` targets.

    Only the newest step on a target can be held against the target itself; an older one is held
    against what the newer will have restored. Stands outside any transaction.
    """
    [seen] = look_at_each([steps], most=most)
    return seen


def look_at_each(
    plans: Sequence[Sequence[DraftStep]], *, most: int, seconds: float = SECONDS_MAX
) -> list[dict[Place, Recorded]]:
    """The same for the steps of many plans, whose targets are read side by side."""
    newest = [_newest(steps) for steps in plans]
    targets = [one for of_plan in newest for one in of_plan.values()]
    found = observe(targets[:most], seconds)
    for one in targets[most:]:
        one.notes.append(f"Of so many targets {count(most)} are read beforehand: not this one.")
    return [_held_against(of_plan, found) for of_plan in newest]


def _newest(steps: Sequence[DraftStep]) -> dict[Place, DraftStep]:
    """Of each target the step that can be held against it; marks the others."""
    newest: dict[Place, DraftStep] = {}
    for one in steps:
        if one.place in newest:
            _between(one)
        elif one.operation.observes:
            newest[one.place] = one
        else:
            one.drift_state = DriftState.UNOBSERVABLE
    return newest


def _held_against(
    newest: dict[Place, DraftStep], found: Mapping[int, Observation]
) -> dict[Place, Recorded]:
    seen: dict[Place, Recorded] = {}
    for place, one in newest.items():
        observation = found.get(id(one))
        if observation is None:
            is_told = expected_of(one.step) is not UNSET  # else it would be held against nothing
            one.drift_state = DriftState.UNKNOWN if is_told else DriftState.UNTOLD
            continue
        seen[place] = one.seen = observation.state if observation.found else None
        _compare(one, observation)
    return seen


def mark_what_comes_back(workspace: int, steps: Sequence[DraftStep]) -> None:
    """Mark steps that would leave a target as another run had left it whose work was undone there:
    of two runs on one target the older was undone first.
    """
    places = {one.place for one in steps}
    undone = Effect.objects.filter(
        workspace=workspace,
        target_type__in={kind for kind, _ in places},
        target_id__in={name for _, name in places},
        compensated=Compensated.COMPENSATED,
        withdrawn=False,
        has_after=True,
    )
    elsewhere: dict[Place, list[Effect]] = {}
    for effect in undone.select_related("action__run").order_by("-pk")[:UNDONE_MAX]:
        elsewhere.setdefault((effect.target_type, effect.target_id), []).append(effect)
    for one in steps:
        for effect in elsewhere.get(one.place, ()):
            is_older = effect.pk < one.effect.pk and effect.action.run_id != one.action.run_id
            if is_older and one.effect.has_before and effect.after == one.effect.before:
                one.brings_back = effect.action.run.run
                told = f"It brings back what run {one.brings_back} had left, which was undone."
                one.notes.append(told)
                break


def refusals(steps: Sequence[DraftStep]) -> dict[int, str]:
    """By effect, why a look showed that it has no way back; an older step on the target builds upon
    what the newest would have restored, and has none either.
    """
    why = {one.place: one.refused for one in steps if one.refused}
    return {one.effect.pk: why[one.place] for one in steps if one.place in why}


def observe(steps: Sequence[DraftStep], seconds: float = SECONDS_MAX) -> dict[int, Observation]:
    """What the targets look like, by the id of the step object; what cannot be read is missing.

    A system that is left alone is not asked, and one look counts once for a connection's health,
    however many targets are read over it.
    """
    steps = _may_be_read(steps)
    counting = {
        id(one) for one in {one.step.connection_id: one for one in reversed(steps)}.values()
    }
    if len(steps) <= 1 or connection.in_atomic_block:  # other threads would not see its rows
        read = ((id(one), _read(one, counts=id(one) in counting)) for one in steps)
        return {key: observation for key, observation in read if observation is not None}
    pool = ThreadPoolExecutor(max_workers=min(PARALLEL_MAX, len(steps)))
    try:
        futures: dict[int, Future[Observation | None]] = {
            id(one): pool.submit(_read_apart, one, counts=id(one) in counting) for one in steps
        }
        done, _ = wait(futures.values(), timeout=max(seconds, 0))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    results = {key: future.result() for key, future in futures.items() if future in done}
    return {key: observation for key, observation in results.items() if observation is not None}


def _may_be_read(steps: Sequence[DraftStep]) -> list[DraftStep]:
    """Those over connections that may be called now; the others are told why not."""
    waits = {
        connection.pk: calllog.may_call(connection)
        for connection in {one.step.connection_id: one.step.connection for one in steps}.values()
    }
    for one in steps:
        if wait_for := waits[one.step.connection_id]:
            one.notes.append(f"The target was not read: {wait_for.reason}")
    return [one for one in steps if waits[one.step.connection_id] is None]


def _read_apart(one: DraftStep, *, counts: bool) -> Observation | None:
    try:
        return _read(one, counts=counts)
    finally:
        connections.close_all()


def _read(one: DraftStep, *, counts: bool) -> Observation | None:
    step = one.step
    look = calls.observing(
        step.connection,
        step.operation,
        step.args,
        target_of(step),
        key=step.key,
        expected=expected_of(step),
    )
    look.line.counts = counts
    try:
        return look.here()
    except CannotRestore as refused:
        one.refused = str(refused)
        return None
    except (CannotRead, Refused) as unread:
        one.notes.append(f"The target could not be read: {unread}")
        return None


def _compare(one: DraftStep, observation: Observation) -> None:
    step = one.step
    known: Any = {
        "key": step.key,
        "before": outbound_calls.restored_by(step),
        "expected": expected_of(step),
        "must_be_true": step.post_condition,
    }
    about = (step.connection, step.operation, step.args, target_of(step), observation)
    try:
        if calls.satisfied(*about, **known):
            one.drift_state = DriftState.ALREADY
            return
        if known["expected"] is UNSET:
            one.drift_state = DriftState.UNTOLD
            return
        differences = calls.drifted(*about, **known)
    except (CannotRead, Refused) as unread:
        one.drift_state = DriftState.UNKNOWN
        one.notes.append(str(unread))
        return
    _mark(one, differences)


def _between(one: DraftStep) -> None:
    """Whether somebody changed the target between two writes of the agent."""
    later = expected_of(one.step)
    if one.chosen or later is UNSET:
        one.drift_state = DriftState.LATER
        return
    left = outbound_calls.after_of(one.effect)
    differences = drift(left, Observation(found=later is not None, state=later))
    key = partial(masking_key, one.step.connection.workspace)
    _mark(one, normalization.still_differ(differences, key))
    if one.drift_state == DriftState.UNCHANGED:
        one.drift_state = DriftState.LATER


def _mark(one: DraftStep, differences: Sequence[FieldDiff]) -> None:
    one.drift_state = DriftState.DRIFTED if differences else DriftState.UNCHANGED
    one.drift = [_row(one, difference) for difference in differences]


def _row(one: DraftStep, difference: FieldDiff) -> dict[str, Any]:
    before = outbound_calls.before_of(one.effect)
    was = before.get(difference.field) if isinstance(before, dict) else None
    return {
        "field": difference.field,
        "was": was,
        "agent_wrote": difference.expected,
        "now": difference.actual,
    }
