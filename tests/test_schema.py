"""The database has what the models say it keeps.

`makemigrations --check` compares models with migrations, not with what the migrations have made: an
AlterField that takes an index from a column drops a partial unique index on that column with it.
"""

import pytest
from django.apps import apps
from django.core.management import CommandError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from config.local.places import ROOT
from config.management.commands import prepare

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
