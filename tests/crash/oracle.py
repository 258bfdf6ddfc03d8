"""The seven invariants of FAULTS.md, asked of the database and of the outside world's journal."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from ledger.models import Event
from recovery.engine import steps
from recovery.models import Plan, Step, StepAttempt
from tests.outside.world import World

AT_REST = {"verified", "reported", "skipped", "cancelled", "drifted", "needs_human"}


def until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for it, or fail and say for what."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"After {seconds:g} seconds still not so: {what}")
        time.sleep(0.1)


def at_rest(plans: Iterable[Plan]) -> bool:
    """Whether nothing of the plans waits for a machine."""
    return not Step.objects.filter(plan__in=list(plans)).exclude(state__in=AT_REST).exists()


def violations(plans: Iterable[Plan], world: World) -> list[str]:
    """What of the invariants does not hold; empty is good."""
    found: list[str] = []
    journal = world.journal()
    for plan in plans:
        known = list(plan.steps.select_related("plan", "effect").order_by("position"))
        found += [broken for step in known for broken in _of_step(step, journal)]
        found += _order(known, journal)
    return found


def _of_step(step: Step, journal: list[dict[str, Any]]) -> Iterable[str]:
    effects = [line for line in journal if line["key"] == step.key]
    name = f"{step.plan.case.run.run} step {step.position} ({step.state})"
    if len(effects) > 1:
        yield f"I1 {name}: {len(effects)} effects"
    if step.state not in AT_REST:
        yield f"I2 {name}: stuck"
    if effects and not StepAttempt.objects.filter(step__key=step.key).exists():
        yield f"I4 {name}: an effect without an intent"
    if step.state == "verified" and not effects and not _found_so(step):
        yield f"I4 {name}: verified without an effect or a read"
    if step.state == "needs_human" and step.operation in {"restore", "refund", "refund_unseen"}:
        yield f"I6 {name}: {step.note}"


def _found_so(step: Step) -> bool:
    said = Event.objects.filter(
        run=steps.run_of(step.plan), action=steps.action_of(step), type="step.verified"
    )
    return any((event.data or {}).get("already") for event in said)


def _order(known: list[Step], journal: list[dict[str, Any]]) -> Iterable[str]:
    places = {line["key"]: place for place, line in reversed(list(enumerate(journal)))}
    done = [places[step.key] for step in known if step.key in places]
    if done != sorted(done):
        yield f"I3 {known[0].plan.case.run.run}: effects out of order"
