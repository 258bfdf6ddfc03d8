"""What is said of a person can be forgotten: one registry knows where, and no column escapes it."""

from django.apps import apps
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.search import SearchVectorField
from django.db import models

from workspaces import erasure_registry

FLOORS = ("workspaces", "ledger", "connectors", "approvals", "recovery")
CAN_HOLD_WORDS = (
    models.CharField, models.TextField, models.JSONField, models.BinaryField, ArrayField,
    SearchVectorField, models.FileField,
)  # fmt: skip


def columns():
    """Every column of ours that can hold words; a choice among our own is none."""
    for floor in FLOORS:
        for model in apps.get_app_config(floor).get_models():
            for column in model._meta.concrete_fields:
                if isinstance(column, CAN_HOLD_WORDS) and not column.choices:
                    yield model._meta.label, column.name


def spoken_of():
    """Every (model, column) that some floor has stated something about."""
    held = {
        (one.model, name) for one in erasure_registry.held() for name in (*one.columns, *one.values)
    }
    return held | erasure_registry._kept.keys()


def test_every_column_that_can_hold_words_is_spoken_of():
    unspoken = set(columns()) - spoken_of()
    assert not unspoken, "say in the floor's personal_data.py what becomes of these"


def test_nothing_is_spoken_of_that_is_not_there():
    there = {
        (model._meta.label, column.name)
        for floor in FLOORS
        for model in apps.get_app_config(floor).get_models()
        for column in model._meta.concrete_fields
    }
    assert not spoken_of() - there


def test_every_held_column_can_be_emptied():
    for one in erasure_registry.held():
        model = apps.get_model(one.model)
        for name in one.columns:
            erasure_registry.blank(model._meta.get_field(name))
