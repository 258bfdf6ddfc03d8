"""The loop of scheduler and sweeper: a job that fails is shown and tried again."""

import threading
import time

import pytest

from config import periodic
from workspaces.models import Heartbeat
from workspaces.periodic import SCHEDULER, Job

WAIT_SECONDS_MAX = 60.0


@pytest.mark.django_db(transaction=True)
def test_a_job_that_raises_is_tried_again_and_its_error_is_on_record() -> None:
    stopping = threading.Event()
    turns: list[float] = []

    def fails_twice() -> None:
        turns.append(time.monotonic())
        if len(turns) < 3:
            raise ValueError("the partition of next week is missing")

    job = Job("ledger.partitions", 0.05, fails_twice, SCHEDULER)
    loop = threading.Thread(target=periodic.repeat, args=(job, stopping))
    loop.start()
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while len(turns) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    stopping.set()
    loop.join(WAIT_SECONDS_MAX)

    beat = Heartbeat.objects.get(name="ledger.partitions")
    assert len(turns) >= 3
    assert beat.last_error == "ValueError: the partition of next week is missing"
