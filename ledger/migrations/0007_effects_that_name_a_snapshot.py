"""From a large snapshot to the effects that name it: an erasure asks whose else it is."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Length
from django.db.models.lookups import Exact


def naming(column):
    ref = KeyTextTransform("ref", column)
    return models.Index(
        models.F("workspace"), ref, name=f"effect_naming_{column}", condition=models.Q(Exact(Length(ref), 71))
    )


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("ledger", "0006_roots_before_their_runs")]
    operations = [
        AddIndexConcurrently("effect", naming("before")),
        AddIndexConcurrently("effect", naming("after")),
    ]
