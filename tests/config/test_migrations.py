"""`make check` refuses a migration that would hold up a desk at work (.ci/migrations), and one that
was cut off goes on.
"""

import runpy
from typing import Any

import pytest
from django.db import IntegrityError, connection, migrations

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
