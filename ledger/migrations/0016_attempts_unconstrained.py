"""Attempts and effects without a constraint on their action.

They are written with their action, in one transaction and under the lock of its run, and go with it
when Django deletes; asking again for each of them cost a tenth of PostgreSQL's part of ingest.
"""

import django.db.models.deletion
from django.db import migrations, models


def unconstrained(model, related_name):
    return migrations.AlterField(
        model_name=model,
        name="action",
        field=models.ForeignKey(
            db_constraint=False,
            db_index=False,
            on_delete=django.db.models.deletion.CASCADE,
            related_name=related_name,
            to="ledger.action",
        ),
    )


class Migration(migrations.Migration):
    dependencies = [("ledger", "0015_erasures_in_parts")]

    operations = [unconstrained("attempt", "attempts"), unconstrained("effect", "effects")]
