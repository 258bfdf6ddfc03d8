"""Roots of traces that came before the run which they end."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("ledger", "0005_cheaper_indexes"),
        ("workspaces", "0011_log_in_of_a_workspace"),
    ]

    operations = [
        migrations.CreateModel(
            name="TraceRoot",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("workspace", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to="workspaces.workspace")),
                ("agent", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to="workspaces.agent")),
                ("run", models.CharField(max_length=120)),
                ("span", models.CharField(max_length=16)),
                ("began", models.CharField(blank=True, help_text="As it is told to the ledger", max_length=40)),
                ("ended", models.CharField(blank=True, max_length=40)),
                ("error", models.JSONField(help_text="Masked; null where it did not fail", null=True)),
                ("received_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "indexes": [
                    models.Index(fields=["workspace", "run"], name="trace_root_of_run"),
                    models.Index(fields=["agent", "id"], name="trace_root_by_age"),
                ],
                "constraints": [models.UniqueConstraint(fields=["agent", "run", "span"], name="trace_root_once")],
            },
        ),
    ]
