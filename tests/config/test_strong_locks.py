"""An upgrade and a new partition wait for readers without keeping anybody waiting behind them."""

import os
import threading
import time

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections
from psycopg.errors import QueryCanceled

from config.management.commands import prepare
from ledger import partitions
from workspaces import locks
from workspaces.locks import StillLocked, patiently

pytestmark = pytest.mark.django_db(transaction=True)
TABLE = "workspaces_heartbeat"


@pytest.fixture
def reader():
    """Somebody reads a table in a transaction that they do not end."""
    with psycopg.connect(os.environ["DATABASE_URL"], application_name="a long report") as reading:
        reading.execute(f"SELECT count(*) FROM {TABLE}")
        yield reading


def test_who_reads_meanwhile_waits_no_longer_than_the_lock_is_asked_for(reader):
    """Others come by while the change waits, again and again."""

    def alter() -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {TABLE} ADD COLUMN IF NOT EXISTS by_a_test int")

    def upgrade() -> None:
        try:
            patiently("default", alter, seconds_max=120, what="The upgrade")
        finally:
            connections.close_all()

    upgrading = threading.Thread(target=upgrade)
    upgrading.start()
    try:
        with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as others:
            others.execute("SET statement_timeout = '4s'")  # four times what is asked for
            end = time.monotonic() + 8
            while time.monotonic() < end:
                others.execute(f"SELECT count(*) FROM {TABLE}")
            assert upgrading.is_alive()
            reader.rollback()
            upgrading.join(60)
            assert not upgrading.is_alive()
            others.execute(f"ALTER TABLE {TABLE} DROP COLUMN by_a_test")
    except QueryCanceled:
        pytest.fail("a reader waited behind the upgrade")
    finally:
        reader.rollback()
        upgrading.join(60)


def test_who_gives_up_says_who_held_the_lock_and_leaves_no_trace(reader, monkeypatch):
    monkeypatch.setattr(locks, "PAUSE_SECONDS", 0.1)
    time.sleep(1.1)  # whoever reads for less than a second is nobody's trouble

    def alter() -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {TABLE} ADD COLUMN by_a_test int")

    with pytest.raises(StillLocked, match=r"The upgrade .*a long report"):
        patiently("default", alter, seconds_max=0.05, what="The upgrade")

    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() != (f"{locks.ASK_MILLISECONDS}ms",)


def test_prepare_gives_up_in_words_before_it_has_kept_anybody_waiting_for_long(reader, monkeypatch):
    """The migration stands in for one that a later version brings."""
    monkeypatch.setattr(locks, "PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(prepare, "LOCKED_SECONDS_MAX", 0.05)

    def migrate(database: str) -> None:
        with connections[database].cursor() as cursor:
            cursor.execute(f"ALTER TABLE {TABLE} ADD COLUMN by_a_test int")

    monkeypatch.setattr(prepare, "migrate", migrate)
    goes_at_last = threading.Timer(20, reader.rollback)
    goes_at_last.start()

    try:
        with pytest.raises(
            CommandError, match=r"prepare .*a long report(?s:.*)Nothing is half done"
        ):
            call_command("prepare")
    finally:
        goes_at_last.cancel()

    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {TABLE} LIMIT 0")
        assert "by_a_test" not in [column.name for column in cursor.description]


def test_a_partition_is_made_although_somebody_reads_for_a_while(monkeypatch):
    monkeypatch.setattr(locks, "PAUSE_SECONDS", 0.1)
    last = max(name for name in _weeks() if name[-1].isdigit())
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {last}")
    with psycopg.connect(os.environ["DATABASE_URL"]) as reading:
        reading.execute("SELECT count(*) FROM ledger_event")
        ends = threading.Timer(3, reading.rollback)
        ends.start()
        assert partitions.make_ahead() == [last]
        ends.join()
    assert last in _weeks()


def _weeks() -> set[str]:
    with connection.cursor() as cursor:
        return partitions.existing(cursor)
