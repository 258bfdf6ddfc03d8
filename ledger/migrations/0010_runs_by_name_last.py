"""The index of a run's name made anew, after the one that lists the newest runs.

As for the events in 0008: for a workspace without statistics both look equally good, and locking
fifty runs by name read all runs of the workspace fifty times.
"""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("ledger", "0009_forgetting")]

    operations = [
        migrations.RunSQL(
            "ALTER TABLE ledger_run DROP CONSTRAINT run_id_in_workspace,"
            " ADD CONSTRAINT run_id_in_workspace UNIQUE (workspace_id, run)",
            migrations.RunSQL.noop,
        ),
    ]
