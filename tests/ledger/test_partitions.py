"""Partitions are made ahead, and one that cannot be made is noticed weeks before it is needed."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from django.db import DatabaseError, connection, transaction

from config import health
from config.periodic import say, turn
from edge import pools
from ledger import partitions
from ledger.models import Event
from tests.ledger.conftest import event, record_events
from tests.servers import as_runtime
from workspaces import periodic

WEEK = timedelta(days=7)


def now():
    return datetime.now(UTC)


def weeks():
    with connection.cursor() as cursor:
        return {partitions.named(name) for name in partitions.existing(cursor)} - {None}


def drop(*ahead):
    with connection.cursor() as cursor:
        for weeks_ahead in ahead:
            cursor.execute(f"DROP TABLE {partitions.week_of(now() + weeks_ahead * WEEK).name}")


@pytest.mark.django_db
def test_four_weeks_are_ready_and_guarded_and_a_lost_one_is_made_again(actor):
    ready = {partitions.week_of(now() + ahead * WEEK) for ahead in range(5)}
    partitions.make_ahead()
    assert ready <= weeks()

    drop(1, 3)
    made = partitions.make_ahead()
    assert made == [partitions.week_of(now() + ahead * WEEK).name for ahead in (1, 3)]
    assert partitions.make_ahead() == []
    with pytest.raises(DatabaseError, match="only grows"), transaction.atomic():
        connection.cursor().execute(f"TRUNCATE {made[0]}")
    record_events(actor, event("run.started"))
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM ledger_event_default")
        assert cursor.fetchone() == (0,), "it landed in its week"


@pytest.mark.django_db
def test_so_many_weeks_are_made_and_no_more():
    later = now() + 43 * WEEK
    assert len(partitions.make_ahead(later)) == partitions.WEEKS_AHEAD + 1
    assert partitions.make_ahead(later) == []


@pytest.mark.django_db
def test_a_year_without_the_job_loses_nothing_and_is_noticed(actor):
    drop(0)
    record_events(actor, event("run.started"))
    assert Event.objects.count() == 1  # the default partition has it

    with pytest.raises(partitions.PartitionMissing, match=partitions.week_of(now()).name):
        partitions.make_ahead()
    assert partitions.week_of(now() + 4 * WEEK) in weeks()  # the others are there all the same


@pytest.mark.django_db(transaction=True)
def test_statusz_tells_of_it_before_it_is_needed(actor, settings):
    job = next(job for job in periodic.jobs() if job.name == "ledger.partitions")
    drop(3)
    with connection.cursor() as cursor:  # an event of a clock three weeks ahead of ours
        cursor.execute(
            "INSERT INTO ledger_event (received_at, workspace_id, event_id, type, actor_kind,"
            " actor, digest) VALUES (%s, %s, 'x', 'run.started', 'agent', 'a', '')",
            [now() + 3 * WEEK, actor.workspace_id],
        )

    say(job, turn(job)[1])

    said = asyncio.run(readiness(as_runtime(settings.DATABASE_URL)))["ledger.partitions"]
    assert said.startswith("failed: PartitionMissing")
    assert partitions.week_of(now() + 3 * WEEK).name in said


async def readiness(url):
    await pools.open_pool(url, connections_max=2)
    try:
        return await health.loops()
    finally:
        await pools.close_pool()
