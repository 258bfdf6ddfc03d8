"""The database has what the models say it keeps.

`makemigrations --check` compares models with migrations, not with what the migrations have made: an
AlterField that takes an index from a column drops a partial unique index on that column with it.
"""

import pytest
from django.apps import apps
from django.db import connection

from config.local.places import ROOT

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
