"""Workers killed with SIGKILL at the named points: one effect each, whatever breaks."""

import pytest

from recovery import tasks
from tests.crash.oracle import at_rest, until, violations
from tests.recovery.engine.desk import plan_for, states
from workspaces.wakeups import wake

pytestmark = pytest.mark.django_db(transaction=True)


def test_law_3_killed_after_claim_intent_and_answer_there_is_one_effect_each(
    processes, environment, things, world, outside
):
    """F01, F02, F04 and law 3: four plans, and a worker child dies in each phase of a step."""
    plans = [plan_for(things(name), world) for name in ("w", "x", "y", "z")]
    environment["FAULT"] = "claimed:kill:1,intended:kill:2,answered:kill:3"
    processes.sweeper(**environment)
    processes.worker(**environment)

    for plan in plans:
        wake(tasks.run_plan, plan.pk)
    until(lambda: at_rest(plans), 60, "every step at rest")

    assert violations(plans, outside) == []
    assert [states(plan) for plan in plans] == [["verified"] * 3] * 4
    assert len(outside.journal()) == 12


def test_a_whole_worker_killed_while_the_outside_world_is_busy(
    processes, environment, things, world, outside
):
    """F03 and F05: the effect is there, its answer never came, and all that was queued is found."""
    plans = [plan_for(things(name), world) for name in ("p", "q", "r")]
    outside.mischief("p2", sleep_after=0.8)
    processes.sweeper(**environment)
    worker = processes.worker(concurrency=1, **environment)
    for plan in plans:
        wake(tasks.run_plan, plan.pk)
    until(lambda: "p2" in outside.effects(), 20, "the effect is in the journal")
    worker.kill()

    processes.worker(**environment)
    until(lambda: at_rest(plans), 60, "every step at rest")

    assert violations(plans, outside) == []
    assert [states(plan) for plan in plans] == [["verified"] * 3] * 3
    assert "step.unknown" in told(plans[0])


def told(plan):
    from ledger.models import Event
    from recovery.engine import steps

    return list(Event.objects.filter(run=steps.run_of(plan)).values_list("type", flat=True))
