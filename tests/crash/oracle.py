"""The seven invariants of FAULTS.md, asked of the database and of the outside world's journal."""

import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

from ledger import audit, sealer
from ledger.models import Event
from recovery.engine import steps
from recovery.models import Plan, Step, StepAttempt
from tests.outside.world import World

AT_REST = {"verified", "reported", "skipped", "cancelled", "drifted", "needs_human"}


HEALED = {"restore", "refund", "refund_unseen", "slowly", "conditional"}
"""Operations with a native key or a probe, which need nobody."""


def until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for it, or fail and say for what."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"After {seconds:g} seconds still not so: {what}")
        time.sleep(0.1)


def rest(plans: Iterable[Plan], seconds: float = 120.0) -> None:
    """Wait until nothing of the plans waits for a machine, or fail and say what does."""
    known = list(plans)
    try:
        until(lambda: at_rest(known), seconds, "every step at rest")
    except AssertionError as late:
        left = Step.objects.filter(plan__in=known).exclude(state__in=AT_REST)
        told = left.values_list("plan", "position", "state", "tries", "wake_at", "note")
        raise AssertionError(f"{late}\n" + "\n".join(map(str, told))) from late


def at_rest(plans: Iterable[Plan]) -> bool:
    """Whether nothing of the plans waits for a machine."""
    return not Step.objects.filter(plan__in=list(plans)).exclude(state__in=AT_REST).exists()


def violations(
    plans: Iterable[Plan],
    world: World,
    *,
    lost_until: int = 0,
    for_people: Collection[str] = (),
) -> list[str]:
    """What of the invariants does not hold; empty is good.

    The intents of the first `lost_until` effects were forgotten by a database that went back. The
    keys in `for_people` belong to steps that only people can settle.
    """
    found: list[str] = []
    journal = world.journal()
    forgotten = {line["key"] for line in journal[:lost_until]}
    for plan in plans:
        known = list(plan.steps.select_related("plan", "effect").order_by("position"))
        found += [
            broken
            for step in known
            for broken in _of_step(step, journal)
            if not (broken.startswith("I4") and step.key in forgotten)
            and not (broken.startswith("I6") and step.key in for_people)
        ]
        found += _order(known, journal)
        found += [broken for step in known for broken in _told(step)]
    return found + _log(plans)


def _told(step: Step) -> Iterable[str]:
    """I5 and I7: the ledger has every move of the step, and names who made those of people."""
    name = f"{step.plan.case.run.run} step {step.position}"
    seen = None
    for event in Event.objects.filter(
        run=steps.run_of(step.plan), action=steps.action_of(step), type__startswith="step."
    ).order_by("place"):
        was, now = (event.data or {}).get("was"), event.type.removeprefix("step.")
        if now == "no_effect":  # what became of a try, and no move
            continue
        if seen is not None and was != seen:
            yield f"I5 {name}: a move from {seen} to {was} is not told"
        if (was in {"drifted", "needs_human"} or now == "skipped") and event.actor_kind == "desk":
            yield f"I7 {name}: {was} to {now} by nobody"
        seen = now
    if seen != step.state:
        yield f"I5 {name}: it stands {step.state}, and {seen} is what was told last"


def _log(plans: Iterable[Plan]) -> list[str]:
    """I5: everything is sealed, and every proof of it holds."""
    workspace = next(iter(plans)).workspace
    sealer.seal_all()
    return [f"I5 {one.name}: {one.words}" for one in audit.audit(workspace) if not one.ok]


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
    if step.state == "needs_human" and step.operation in HEALED:
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
