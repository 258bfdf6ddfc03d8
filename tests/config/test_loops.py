"""The loop of scheduler and sweeper: a job that fails is shown and tried again."""

import subprocess
import sys
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models.functions import Now

from config import periodic
from config.local.places import ROOT
from ledger.models import Run
from tests import people
from workspaces import clock
from workspaces.models import Agent, Heartbeat, Workspace
from workspaces.periodic import SCHEDULER, Job, jobs, own_name

acme = people.acme
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


@pytest.mark.django_db
def test_what_stands_in_a_row_is_not_told_with_an_error(acme: Workspace) -> None:
    """`/statusz` says it to strangers, and every workspace is told."""

    def fails() -> None:
        with transaction.atomic():
            Workspace.objects.create(slug=acme.slug, name="Acme")

    found, error = periodic.turn(Job("any", 1, fails, SCHEDULER))

    assert error.startswith("IntegrityError: duplicate key value violates unique constraint")
    assert (found, acme.slug in error) == (False, False)


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


@pytest.mark.django_db
def test_where_nothing_waits_a_job_asks_its_queues_and_does_nothing(
    django_assert_num_queries: Any,
) -> None:
    asking = [job for job in jobs() if job.queues]
    assert len(asking) > 5

    for job in asking:
        with django_assert_num_queries(len(job.queues)):
            assert periodic.turn(job) == (False, ""), job.name


@pytest.mark.django_db
def test_what_comes_to_wait_later_is_found_by_the_same_statement(acme: Workspace) -> None:
    """Its text is written once, and its clock is the database's."""
    agent = Agent.objects.create(workspace=acme, name="clerk")
    lease = clock.database_time() + timedelta(hours=1)
    run = Run.objects.create(workspace=acme, agent=agent, run="r1", lease_until=lease)
    [queue] = next(job for job in jobs() if job.name == "recovery.silence").queues
    assert not queue.has_any(), "it may be silent for an hour more"

    Run.objects.filter(pk=run.pk).update(lease_until=Now() + timedelta(seconds=0.1))
    time.sleep(0.2)

    assert queue.has_any()


def test_a_process_ends_without_a_search_for_what_ends_with_it() -> None:
    """It took the scheduler two thirds of a second of its processor."""
    program = (
        "import atexit, gc, runpy, sys; atexit.register(lambda: print(gc.get_freeze_count()));"
        " sys.argv = ['manage.py', '--version']; runpy.run_path('manage.py', run_name='__main__')"
    )
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert int(said.split()[-1]) > 10_000


def test_a_web_process_starts_without_a_search_through_what_it_imports_and_without_a_terminal() -> (
    None
):
    """They were a third of what its start takes of a processor."""
    program = (
        "import config.asgi, gc, sys;"
        " print(gc.get_stats()[2]['collections'], gc.get_freeze_count(), gc.get_threshold()[0],"
        " 'prompt_toolkit' in sys.modules)"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    searches, frozen, threshold, has_a_terminal = said.split()
    assert searches == "0"
    assert int(frozen) > 10_000
    assert int(threshold) == 50_000
    assert has_a_terminal == "False"
