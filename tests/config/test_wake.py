"""A wake-up is a hint: it may be lost, and it never costs a person anything."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import shared_task
from django.conf import settings
from django.contrib.auth.models import Group
from django.db import transaction

from tests.conftest import started
from workspaces.wakeups import broker, wake, wake_on_commit

PERSON_WAITS_SECONDS_MAX = 0.5
TRIES = 5
"""This machine may be busy: the quickest of a few tries says what the broker costs by itself."""
HUNDRED_WAITS_SECONDS = 20.0


@shared_task(name="tests.ring")
def ring(number: int) -> None:
    """Nobody runs it: these tests look at what was sent."""


@pytest.fixture(autouse=True)
def nothing_known_of_the_broker() -> Iterator[None]:
    broker.forget()
    yield
    broker.forget()


@pytest.fixture
def queues() -> Iterator[Any]:
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.flushall()
        yield client


@pytest.fixture
def broker_is_down() -> Iterator[None]:
    started["valkey"].stop()
    yield
    started["valkey"].start()


@pytest.fixture
def broker_hangs() -> Iterator[None]:
    """It accepts connections and says nothing, as behind a dead link."""
    pid = started["valkey"].pid
    os.kill(pid, signal.SIGSTOP)
    yield
    os.kill(pid, signal.SIGCONT)


def commit_and_wake(name: str = "finance") -> float:
    begun = time.monotonic()
    with transaction.atomic():
        Group.objects.create(name=name)
        wake_on_commit(ring, 1)
    return time.monotonic() - begun


@pytest.mark.django_db(transaction=True)
def test_a_committed_row_wakes_a_worker_of_its_queue(queues: Any) -> None:
    commit_and_wake()
    wake(ring, 2, queue="connector.sql")

    assert queues.llen("engine") == 1
    assert queues.llen("connector.sql") == 1


@pytest.mark.django_db(transaction=True)
def test_what_was_rolled_back_wakes_nobody(queues: Any) -> None:
    with transaction.atomic():
        wake_on_commit(ring, 1)
        transaction.set_rollback(True)

    assert queues.llen("engine") == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("trouble", ["broker_is_down", "broker_hangs"])
def test_a_person_does_not_wait_for_a_broker_that_is_away(
    trouble: str, request: pytest.FixtureRequest
) -> None:
    commit_and_wake()
    Group.objects.all().delete()
    request.getfixturevalue(trouble)

    waited = []
    for number in range(TRIES):
        broker.forget()
        waited.append(commit_and_wake(f"finance {number}"))

    assert min(waited) < PERSON_WAITS_SECONDS_MAX
    assert Group.objects.filter(name__startswith="finance ").count() == TRIES


def test_after_one_failure_a_hundred_more_wake_ups_cost_nothing(broker_hangs: None) -> None:
    wake(ring, 0)
    begun = time.monotonic()

    sent = [wake(ring, number) for number in range(100)]

    assert not any(sent)
    assert time.monotonic() - begun < HUNDRED_WAITS_SECONDS / 4


def test_the_first_wake_up_after_a_restart_of_the_broker_arrives(queues: Any) -> None:
    assert wake(ring, 1)
    started["valkey"].stop()
    started["valkey"].start()

    assert wake(ring, 2)

    assert queues.llen("engine") == 1
