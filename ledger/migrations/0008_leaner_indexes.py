"""Indexes that another one makes superfluous; and the one of a run's events made anew.

Where PostgreSQL has no statistics of a workspace yet, two indexes that lead with it look equally
good, and the one that was made last is taken. It must be the one that finds a run's events by run
and action, not the one that lists the newest: a test holds it to that.
"""

import django.db.models.deletion
from django.db import migrations, models


def without_index(model, name, to, related_name):
    return migrations.AlterField(
        model_name=model,
        name=name,
        field=models.ForeignKey(
            db_index=False,
            on_delete=django.db.models.deletion.CASCADE,
            related_name=related_name,
            to=to,
        ),
    )


UNSEALED = migrations.SeparateDatabaseAndState(
    database_operations=[
        migrations.RunSQL(
            "ALTER TABLE ledger_unsealed DROP CONSTRAINT ledger_unsealed_pkey,"
            " ADD PRIMARY KEY (workspace_id, place); DROP INDEX unsealed_in_order",
            "ALTER TABLE ledger_unsealed DROP CONSTRAINT ledger_unsealed_pkey,"
            " ADD PRIMARY KEY (place);"
            " CREATE INDEX unsealed_in_order ON ledger_unsealed (workspace_id, place)",
        )
    ],
    state_operations=[
        migrations.DeleteModel("Unsealed"),
        migrations.CreateModel(
            name="Unsealed",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "workspace_id",
                        "place",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("place", models.BigIntegerField()),
                ("received_at", models.DateTimeField()),
                (
                    "workspace",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="workspaces.workspace",
                    ),
                ),
            ],
        ),
    ],
)


class Migration(migrations.Migration):
    dependencies = [("ledger", "0007_rare_things")]

    operations = [
        without_index("action", "run", "ledger.run", "actions"),
        without_index("attempt", "action", "ledger.action", "attempts"),
        without_index("effect", "action", "ledger.action", "effects"),
        without_index("checkpoint", "run", "ledger.run", "checkpoints"),
        UNSEALED,
        migrations.RunSQL(
            "DROP INDEX ledger_event_of_run;"
            " CREATE INDEX ledger_event_of_run ON ledger_event (workspace_id, run, action, place)",
            migrations.RunSQL.noop,
        ),
    ]
