"""What a worker does for a plan, as spans: claim, intend, act, settle (edge/tracing.py)."""

import time
from collections.abc import Iterable

from edge import tracing
from recovery.models import Step


def record(name: str, began: float, steps: Iterable[Step]) -> None:
    """A span for each step, all of one moment: what they share is one commit."""
    if not tracing.tracing.is_on:
        return
    for step in steps:
        action = step.effect.action
        tracing.record(
            name, began, of_plan=f"{step.workspace_id}/{step.plan_id}",
            workspace=step.workspace.slug, run=action.run.run, action=action.action,
            plan=step.plan_id, step=step.pk, position=step.position, state=step.state,
            connection=step.connection.name, operation=step.operation,
        )  # fmt: skip


def at(monotonic: float) -> float:
    """By `time.time()`, what was by `time.monotonic()`."""
    return time.time() - (time.monotonic() - monotonic)
