"""Quick calls share a hand; whoever takes long holds up nobody else."""

import queue
import threading

import pytest

from connectors import call_pool
from connectors.call_pool import CallPool, OutboundCall
from connectors.calllog import CallRecord
from connectors.contract import Target
from connectors.models import Connection
from connectors.outbound import Deadline, OutOfTime
from workspaces import clock


@pytest.fixture(autouse=True)
def quick():
    """Calls over the connection were quick until now."""
    call_pool._took[7, "apply"] = 0.0
    yield
    call_pool._took.clear()


@pytest.fixture
def answers():
    return queue.SimpleQueue()


def errand(work):
    line = CallRecord(Connection(pk=7, name="world"), "apply", "set", Target("thing", "a"))
    return OutboundCall(line, 5.0, work, lambda one: one.came)


def heard(answers, count):
    return [answers.get(timeout=60) for _ in range(count)]


def test_quick_calls_are_made_by_one_hand(answers):
    CallPool(answers).start([errand(threading.get_ident) for _ in range(5)])

    assert len({one.came for one in heard(answers, 5)}) == 1


def test_those_behind_a_call_that_takes_long_get_hands_of_their_own(answers):
    over = threading.Event()
    side = CallPool(answers)
    slow = errand(lambda: over.wait(60))
    side.start([slow, *(errand(threading.get_ident) for _ in range(3))])

    side.spread()
    others = heard(answers, 3)

    assert slow not in others
    over.set()
    assert heard(answers, 1) == [slow]


def test_after_a_slow_call_nobody_shares_a_hand(answers):
    call_pool._took[7, "apply"] = 1.0
    together = threading.Barrier(3)

    CallPool(answers).start([errand(lambda: together.wait(60)) for _ in range(3)])

    assert [one.failure for one in heard(answers, 3)] == [None] * 3


def test_a_call_that_waited_for_too_long_is_not_made_any_more(answers, monkeypatch):
    """Nor one whose machine was stopped meanwhile: by then it may be taken for lost."""
    over, made = threading.Event(), []
    side = CallPool(answers)
    slow, late = errand(lambda: over.wait(60)), errand(lambda: made.append(1))
    deadline = Deadline(5)
    side.start([slow, late])
    before = clock.boot_seconds
    monkeypatch.setattr(clock, "boot_seconds", lambda: before() + 60)

    over.set()

    assert set(heard(answers, 2)) == {slow, late}
    assert (made, late.work) == ([], None)
    with pytest.raises(OutOfTime):
        deadline.remaining()
