"""The database has what the models say it keeps.

`makemigrations --check` compares models with migrations, not with what the migrations have made: an
AlterField that takes an index from a column drops a partial unique index on that column with it.
"""

import os
import subprocess
import sys

import psycopg
import pytest
from django.apps import apps
from django.core.management import CommandError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from config.local.places import ROOT
from config.local.postgres import Postgres
from config.management.commands import prepare
from tests import servers

OURS = [one for one in apps.get_app_configs() if (ROOT / one.name.partition(".")[0]).is_dir()]


def promised(model):
    """The names of all constraints and indexes that the model declares."""
    meta = model._meta
    return {one.name for one in (*meta.constraints, *meta.indexes)}


@pytest.mark.django_db
@pytest.mark.parametrize("app", OURS, ids=lambda app: app.label)
def test_every_constraint_and_index_is_there(app):
    with connection.cursor() as cursor:
        lacking = {
            model.__name__: promised(model)
            - connection.introspection.get_constraints(cursor, model._meta.db_table).keys()
            for model in app.get_models()
            if model._meta.managed
        }

    assert {name: sorted(found) for name, found in lacking.items() if found} == {}


@pytest.mark.django_db
def test_a_desk_that_ran_all_squashed_migrations_has_nothing_to_do_and_an_older_one_is_told():
    """They are in no file any more; a desk that ran them has the very same tables."""
    labels = {"workspaces", "ledger", "connectors", "approvals", "recovery"}
    recorder = MigrationRecorder(connection)
    loader = MigrationLoader(connection)
    assert {app for app, _ in loader.replacements} == labels
    recorder.migration_qs.filter(app__in=labels).delete()
    for one in loader.replacements.values():
        for app, name in one.replaces:
            recorder.record_applied(app, name)

    executor = MigrationExecutor(connection)
    ahead = executor.migration_plan(executor.loader.graph.leaf_nodes())
    assert [one.name for one, _ in ahead if one.replaces] == []
    prepare.refuse_an_older_desk(executor)

    recorder.record_unapplied("recovery", "0009_counted_views")
    with pytest.raises(CommandError, match="by an older version, and recovery"):
        prepare.migrate("default")


EVENTS = """
INSERT INTO ledger_event (place, workspace_id, event_id, type, actor_kind, actor, digest,
    received_at)
SELECT n, 1, 'e' || n, 'run.started', 'desk', 'desk', '', now() - (n % 3) * interval '1 week'
FROM generate_series(1, 300) n"""
KEYS = """
SELECT c.conrelid::regclass::text, pg_get_constraintdef(c.oid) FROM pg_constraint c
JOIN pg_inherits i ON i.inhrelid = c.conrelid
WHERE c.contype = 'p' AND i.inhparent = 'ledger_event'::regclass"""
LEFT_HALF_BUILT = """
CREATE UNIQUE INDEX ledger_event_default_next_key ON ledger_event_default (received_at, place);
UPDATE pg_index SET indisvalid = false
WHERE indexrelid = 'ledger_event_default_next_key'::regclass"""
NEWEST = """
EXPLAIN SELECT event_id FROM ledger_event WHERE workspace_id = 1 ORDER BY place DESC LIMIT 1"""


def test_the_key_of_events_changes_and_changes_back_over_events_and_over_what_was_cut_off(
    own_postgres: Postgres,
):
    url = own_postgres.url(servers.TEMPLATE)
    environment = os.environ | {"DATABASE_URL": url, "DATABASE_OWNER_URL": url}

    def keys() -> dict[str, str]:
        return {str(week): str(definition) for week, definition in session.execute(KEYS)}

    def migrate(*to: str) -> None:
        command = [sys.executable, "-W", "ignore", "manage.py", "migrate", "-v", "0", *to]
        subprocess.run(command, cwd=ROOT, check=True, env=environment, capture_output=True)

    migrate("ledger", "0003")
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("SET session_replication_role = replica")  # events of no workspace will do
        session.execute(EVENTS)
        before = keys()
        assert set(before.values()) == {"PRIMARY KEY (place, received_at)"}
        session.execute(LEFT_HALF_BUILT)

        migrate()
        after = keys()
        assert after == dict.fromkeys(before, "PRIMARY KEY (workspace_id, place, received_at)")
        assert session.execute("SELECT count(*) FROM ledger_event").fetchone() == (300,)
        session.execute("SET enable_seqscan = off")
        assert "_pkey on" in str(session.execute(NEWEST).fetchall())

        migrate("ledger", "0003")
        assert keys() == before
