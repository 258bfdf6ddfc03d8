"""The index that keeps a plan to one active step comes back, also after it was away for a while."""

from importlib import import_module

import pytest
from django.apps import apps
from django.core.management.base import CommandError
from django.db import IntegrityError, connection

from tests.recovery.engine.desk import plan_for

pytestmark = pytest.mark.django_db(transaction=True)
MIGRATION = import_module("recovery.migrations.0018_one_active_step_again")


def asked(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql, [MIGRATION.NAME])
        return cursor.fetchone()


def build():
    with connection.schema_editor(atomic=False) as editor:
        MIGRATION.build(apps, editor)


@pytest.fixture
def away():
    """The index as it is while it is away; it is there again afterwards."""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP INDEX {MIGRATION.NAME}")
    yield
    connection.cursor().execute("UPDATE recovery_step SET was = '', state = 'ready'")
    build()


def test_two_active_steps_are_named_and_nothing_is_changed(case, world, away):
    plan = plan_for(case, world)
    plan.steps.filter(position__in=[1, 2]).update(was="ready", state="claimed")

    with pytest.raises(CommandError, match=rf"plan {plan.pk} of acme \(steps 1, 2\)") as refused:
        build()

    assert "Let the workers of the version that ran before go on" in str(refused.value)
    assert asked(MIGRATION.IS_VALID) is None


def test_it_is_built_after_a_try_that_was_interrupted(case, world, away):
    plan = plan_for(case, world)
    plan.steps.filter(position__in=[1, 2]).update(was="ready", state="claimed")
    with pytest.raises(IntegrityError), connection.cursor() as cursor:
        cursor.execute(MIGRATION.BUILD)
    assert asked(MIGRATION.IS_VALID) == (False,)
    plan.steps.filter(position=2).update(was="claimed", state="ready")

    build()

    assert asked(MIGRATION.IS_VALID) == (True,)
    build()  # and again it changes nothing
    assert asked(MIGRATION.IS_VALID) == (True,)
