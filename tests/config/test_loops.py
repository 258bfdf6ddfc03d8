"""The loop of scheduler and sweeper: a job that fails is shown and tried again."""

import threading
import time
from typing import Any

import pytest

from config import periodic
from workspaces.models import Heartbeat
from workspaces.periodic import SCHEDULER, Job, own_name

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


@pytest.mark.parametrize(
    ("pace", "busy", "idle"), [(0.2, 0.2, 0.8), (1.0, 1.0, 2.0), (5.0, 5.0, 5.0)]
)
def test_a_job_that_finds_nothing_for_a_while_looks_less_often(
    pace: float, busy: float, idle: float
) -> None:
    job = Job("ledger.seal", pace, int, SCHEDULER)

    assert periodic.pause(job, 0.0) == busy
    assert periodic.pause(job, periodic.QUIET_SECONDS + 1) == idle


def test_what_a_job_found_is_known_and_one_that_does_not_say_is_taken_for_busy() -> None:
    found = [
        periodic.turn(Job("any", 1, work, SCHEDULER)) for work in (lambda: 3, int, lambda: None)
    ]

    assert found == [(True, ""), (False, ""), (True, "")]


@pytest.mark.django_db
def test_all_jobs_of_a_process_say_in_one_statement_that_they_live(
    django_assert_num_queries: Any,
) -> None:
    jobs = [Job(name, 1, int, SCHEDULER) for name in ("ledger.seal", "ledger.words")]
    with django_assert_num_queries(1):
        for job in (*jobs, Job(SCHEDULER, 5, int, SCHEDULER)):
            periodic.say(job, "")

    known = set(Heartbeat.objects.values_list("name", flat=True))
    assert {"ledger.seal", "ledger.words", SCHEDULER, own_name(SCHEDULER)} <= known
