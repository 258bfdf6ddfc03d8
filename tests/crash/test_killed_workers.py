"""Workers killed with SIGKILL at the named points, or told to end: one effect each, whatever
breaks."""

import os
import signal

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
    outside.mischief("p2", sleep_after=30)
    processes.sweeper(**environment)
    worker = processes.worker(concurrency=1, **environment)
    for plan in plans:
        wake(tasks.run_plan, plan.pk)
    until(lambda: "p2" in outside.effects(), 60, "the effect is in the journal")
    worker.kill()

    processes.worker(**environment)
    until(lambda: at_rest(plans), 60, "every step at rest")

    assert violations(plans, outside) == []
    assert [states(plan) for plan in plans] == [["verified"] * 3] * 3
    assert "step.unknown" in told(plans[0])


def test_a_worker_that_is_told_to_end_hands_back_what_it_has_not_sent(
    processes, environment, things, world, outside
):
    """F25: one step is being looked at and one is on the wire; nobody waits for a lease."""
    environment["OUTSIDE_LIMIT_SECONDS"] = "20"
    looking, sending = (plan_for(things(name), world) for name in ("p", "q"))
    outside.mischief("read p2", sleep_before=30)
    outside.mischief("q2", sleep_after=5)
    worker = processes.worker(concurrency=2, **environment)
    for plan in (looking, sending):
        wake(tasks.run_plan, plan.pk)
    until(lambda: "q2" in outside.effects(), 60, "one effect is there, and not answered")
    until(lambda: states(looking)[0] == "claimed", 60, "the other is in hand")
    os.kill(worker.pid, signal.SIGTERM)

    until(lambda: states(looking)[0] == "ready", 15, "what was not sent is given back")
    until(lambda: not worker.alive(), 30, "the worker ended by itself")
    given_back, answered = told(looking), told(sending)
    processes.sweeper(**environment)
    processes.worker(**environment)
    until(lambda: at_rest([looking, sending]), 60, "every step at rest")

    assert given_back == ["step.claimed", "step.ready"]
    assert answered[-1] == "step.applied"
    assert violations([looking, sending], outside) == []
    assert [states(plan) for plan in (looking, sending)] == [["verified"] * 3] * 2
    assert not {"step.unknown", "step.no_effect"} & {*told(looking), *told(sending)}


def told(plan):
    from ledger.models import Event
    from recovery.engine import steps

    mine = Event.objects.filter(run=steps.run_of(plan), type__startswith="step.")
    return list(mine.order_by("place").values_list("type", flat=True))
