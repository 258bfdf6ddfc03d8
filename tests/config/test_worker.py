"""A worker outlives its servers: the database and the broker may restart under it."""

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from django.db import connection, transaction

from config.local.postgres import Postgres
from recovery.tasks import run_plan
from tests.config.test_door import TERMINATE_OTHERS, ask
from tests.conftest import started
from tests.processes import Process, Processes, database_answers
from tests.servers import TEMPLATE
from workspaces.wakeups import broker, wake

WAIT_SECONDS_MAX = 90.0
NO_PLAN = 404  # there is none: the worker looks for it in the database, and is done
LOOKED = "succeeded in"
RECEIVED = " received"


@pytest.fixture
def worker(processes: Processes) -> Process:
    return processes.worker(concurrency=1)


def soon(happened: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def is_sent() -> None:
    """Nobody waits long for a broker; where it was slow to answer it is asked again."""

    def sent() -> bool:
        broker.forget()
        return wake(run_plan, NO_PLAN)

    assert soon(sent)


def looks_for_a_plan(worker: Process) -> bool:
    """One task is sent, and ends at the database."""
    before = worker.said().count(LOOKED)
    is_sent()
    return soon(lambda: worker.said().count(LOOKED) > before)


def test_a_worker_goes_on_after_all_its_connections_to_the_database_were_cut(
    worker: Process,
) -> None:
    assert looks_for_a_plan(worker), worker.said()
    with connection.cursor() as cursor:
        cursor.execute(TERMINATE_OTHERS)

    assert looks_for_a_plan(worker)
    assert "OperationalError" not in worker.said()


def test_a_worker_finds_the_broker_again_after_a_restart(worker: Process) -> None:
    assert looks_for_a_plan(worker), worker.said()

    started["valkey"].stop()
    time.sleep(0.5)
    started["valkey"].start()

    assert looks_for_a_plan(worker), worker.said()


def test_a_worker_that_is_at_work_outlives_its_broker(processes: Processes) -> None:
    """F08: it listens for more, and what it has in hand can be given back to nobody."""
    worker = processes.worker(concurrency=2)
    assert looks_for_a_plan(worker), worker.said()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("LOCK TABLE recovery_plan")
        before = worker.said().count(RECEIVED)
        is_sent()
        assert soon(lambda: worker.said().count(RECEIVED) > before)
        started["valkey"].stop()
        assert soon(lambda: "Connection to broker lost" in worker.said())
    assert soon(lambda: worker.said().count(LOOKED) > 1), worker.said()
    started["valkey"].start()

    assert looks_for_a_plan(worker), worker.said()
    assert worker.alive()


def test_a_worker_goes_on_when_a_broker_that_hung_comes_back(worker: Process) -> None:
    assert looks_for_a_plan(worker), worker.said()
    os.kill(started["valkey"].pid, signal.SIGSTOP)
    try:
        assert not wake(run_plan, NO_PLAN)
    finally:
        os.kill(started["valkey"].pid, signal.SIGCONT)

    assert looks_for_a_plan(worker), worker.said()


def test_a_worker_outlives_a_full_broker_and_goes_on_when_there_is_room(worker: Process) -> None:
    """F10: nobody can note what was taken, nor say which queues he listens to."""
    assert looks_for_a_plan(worker), worker.said()
    os.kill(worker.pid, signal.SIGSTOP)  # so that the message waits for it
    is_sent()
    with redis.Redis.from_url(started["valkey"].url) as talk:
        talk.config_set("maxmemory", "1mb")
        os.kill(worker.pid, signal.SIGCONT)
        assert soon(lambda: "OutOfMemoryError" in worker.said())
        talk.config_set("maxmemory", "256mb")

    assert looks_for_a_plan(worker), worker.said()
    assert worker.alive()


def test_a_pool_shares_what_was_imported(processes: Processes) -> None:
    """Of each process of the pool the smaller part is its own."""
    worker = processes.worker(concurrency=3)
    pool = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()

    assert len(pool) == 3
    for pid in pool:
        memory = Path(f"/proc/{pid}/smaps_rollup").read_text()
        found = re.findall(r"^(\w+): +(\d+) kB", memory, re.MULTILINE)
        sizes = {name: int(size) for name, size in found}
        assert sizes["Private_Dirty"] < sizes["Rss"] / 3, sizes


def test_a_web_process_outlives_its_database(processes: Processes, own_postgres: Postgres) -> None:
    url = own_postgres.url(TEMPLATE)
    web = processes.web(DATABASE_URL=url, DATABASE_OWNER_URL=url)
    assert own_postgres.pid is not None
    web.wait_until_ready()

    os.kill(own_postgres.pid, signal.SIGKILL)
    gone = soon(lambda: not database_answers(f"{web.url}/readyz"))
    own_postgres.stop()
    own_postgres.start()
    web.wait_until_ready()

    assert gone
    assert ask(f"{web.url}/accounts/login/")[0] == 200
