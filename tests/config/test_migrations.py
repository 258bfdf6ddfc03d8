"""`make check` refuses a migration that would hold up a desk at work (.ci/migrations), and one that
was cut off goes on.
"""

import os
import runpy
import threading
import time
from typing import Any

import psycopg
import pytest
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import IntegrityError, connection, migrations, models

from config.local.places import ROOT
from workspaces import locks


@pytest.fixture(scope="module")
def linter() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / ".ci" / "migrations"))


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("CREATE INDEX slow ON ledger_event (run);", "require-concurrent-index-creation"),
        (
            "ALTER TABLE ledger_event ADD CONSTRAINT c CHECK (place > 0);",
            "constraint-missing-not-valid",
        ),
        ("ALTER TABLE ledger_event ALTER COLUMN run SET NOT NULL;", "adding-not-nullable-field"),
        ("ALTER TABLE ledger_event RENAME COLUMN run TO course;", "renaming-column"),
        ("ALTER TABLE ledger_event DROP COLUMN run;", "ban-drop-column"),
    ],
)
def test_what_waits_for_every_row_or_breaks_the_version_before_is_named(
    linter: dict[str, Any], statement: str, rule: str
) -> None:
    one = migrations.Migration("0099_ours", "ledger")
    assert rule in dict(linter["squawk"](one, statement))


def test_what_holds_nobody_up_passes(linter: dict[str, Any]) -> None:
    class Alone(migrations.Migration):
        atomic = False

    one = Alone("0099_ours", "ledger")
    text = """CREATE INDEX CONCURRENTLY quick ON ledger_event (run);
        ALTER TABLE ledger_event ADD COLUMN said text DEFAULT '' NOT NULL;
        ALTER TABLE ledger_event ADD CONSTRAINT c CHECK (place > 0) NOT VALID;"""

    assert dict(linter["squawk"](one, text)) == {}
    assert linter["rows_at_once"](one, text) is None


def test_all_rows_in_one_statement_are_too_many(linter: dict[str, Any]) -> None:
    one = migrations.Migration("0099_ours", "ledger")

    assert "UPDATE" in linter["rows_at_once"](one, "UPDATE ledger_event SET run = '';")
    body = "CREATE FUNCTION f() RETURNS void AS $$ UPDATE t SET a = 1; $$ LANGUAGE sql;"
    assert linter["rows_at_once"](one, body) is None

    class Unread(migrations.Migration):
        operations = [migrations.RunPython(migrations.RunPython.noop)]

    assert "Python" in linter["rows_at_once"](Unread("0099_ours", "ledger"), "")


def test_what_cannot_begin_anew_where_it_was_cut_off_is_in_a_transaction(
    linter: dict[str, Any],
) -> None:
    class Ours(migrations.Migration):
        operations = [
            migrations.AddField("event", "said", models.TextField(null=True)),
            AddIndexConcurrently("event", models.Index(fields=["run"], name="by_run")),
        ]

    one = Ours("0099_ours", "ledger")
    assert linter["once_only"](one) is None
    Ours.atomic = False

    assert "field said" in linter["once_only"](one)


@pytest.mark.django_db(transaction=True)
def test_an_index_that_an_upgrade_left_half_built_is_built_anew_and_a_whole_one_stays() -> None:
    """Killed while it was built, or before the migration was noted."""
    build = 'CREATE INDEX CONCURRENTLY "by_a_test" ON a_test (number)'
    whole = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('by_a_test')"
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE a_test AS SELECT 7 AS number FROM generate_series(1, 2)")
        try:
            with pytest.raises(IntegrityError):
                cursor.execute(build.replace("INDEX", "UNIQUE INDEX"))

            with locks.short_lock_timeout("default"):
                cursor.execute(build)
                cursor.execute(build)

            cursor.execute(whole)
            assert cursor.fetchone() == (True,)
        finally:
            cursor.execute("DROP TABLE a_test")


@pytest.mark.django_db(transaction=True)
def test_an_index_that_somebody_builds_just_now_is_waited_for_and_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They wait themselves, for a transaction that ends once we have waited for a while."""
    build = 'CREATE INDEX CONCURRENTLY "by_a_test" ON a_test (number)'
    there = (
        "SELECT indexrelid, indisvalid FROM pg_index WHERE indexrelid = to_regclass('by_a_test')"
    )
    with (
        psycopg.connect(os.environ["DATABASE_URL"]) as writing,
        psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as other,
        connection.cursor() as cursor,
    ):
        cursor.execute("CREATE TABLE a_test AS SELECT 7 AS number")
        try:
            writing.execute("INSERT INTO a_test VALUES (8)")
            building = threading.Thread(target=other.execute, args=[build])
            building.start()
            begun = None
            while begun is None:
                cursor.execute(there)
                begun = cursor.fetchone()
            assert not begun[1]
            waited: list[float] = []

            def wait(seconds: float) -> None:
                waited.append(seconds)
                if len(waited) == 3:
                    writing.commit()
                    building.join(60)

            monkeypatch.setattr(time, "sleep", wait)
            cursor.execute("SET statement_timeout = '20s'")
            with locks.short_lock_timeout("default"):
                cursor.execute(build)

            cursor.execute(there)
            assert cursor.fetchone() == (begun[0], True)
        finally:
            writing.rollback()
            building.join(60)
            cursor.execute("RESET statement_timeout")
            cursor.execute("DROP TABLE a_test")


@pytest.mark.django_db(transaction=True)
def test_two_upgrades_take_turns_at_building(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = []
    with (
        psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as first,
        connection.cursor() as cursor,
    ):
        first.execute("SELECT pg_advisory_lock(%s)", [locks.BUILDING])

        def wait(seconds: float) -> None:
            cursor.execute("SELECT to_regclass('by_a_test')")
            turns.append(cursor.fetchone())
            first.execute("SELECT pg_advisory_unlock(%s)", [locks.BUILDING])

        monkeypatch.setattr(time, "sleep", wait)
        cursor.execute("CREATE TABLE a_test AS SELECT 7 AS number")
        try:
            with locks.short_lock_timeout("default"):
                cursor.execute('CREATE INDEX CONCURRENTLY "by_a_test" ON a_test (number)')
            assert turns == [(None,)], "it was not built while another had its turn"
            first.execute("SET lock_timeout = '1s'")
            first.execute("SELECT pg_advisory_lock(%s)", [locks.BUILDING])
        finally:
            cursor.execute("DROP TABLE a_test")
