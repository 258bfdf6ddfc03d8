"""A slow system holds up its own plans and nobody else's."""

import pytest

from connectors import connections
from recovery import tasks
from tests.crash.oracle import at_rest, rest, violations
from tests.recovery.engine.desk import plan_for
from workspaces.wakeups import wake

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_slow_connection_takes_no_more_calls_than_it_may_and_holds_up_nobody(
    processes, environment, things, world, outside, acme, ada
):
    """One worker with two children, and a system that needs most of a second for each call."""
    world.concurrency = 1
    world.save()
    quick = connections.create(acme, "quick", "outside", {"url": outside.url}, by=ada)
    slow_plans = [plan_for(things(f"s{number}"), world) for number in range(4)]
    for plan in slow_plans:
        for step in plan.steps.all():
            outside.mischief(step.target_id, sleep_before=0.6)
    quick_plans = [plan_for(things(f"q{number}"), quick) for number in range(3)]
    processes.sweeper(**environment)
    processes.worker(concurrency=2, **environment)

    for plan in [*slow_plans, *quick_plans]:
        wake(tasks.run_plan, plan.pk)
    rest(quick_plans, 60)
    slow_was_at_work = not at_rest(slow_plans)
    rest(slow_plans)

    assert slow_was_at_work
    assert outside.most_at_once("s") == 1
    assert violations([*slow_plans, *quick_plans], outside) == []
