"""Indexes for what is rare in a run and asked for at each `begin`; one constraint less.

An event's workspace is its key's or its run's, as with the other tables of the ledger; checking it
cost as much as writing the row, and locked the workspace's row for the length of each transaction.
"""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('ledger', '0010_runs_by_name_last'),
        ('workspaces', '0001_initial'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='action',
            index=models.Index(condition=models.Q(('saga', 'pivot')), fields=['run'], name='action_pivot'),
        ),
        migrations.AddIndex(
            model_name='action',
            index=models.Index(condition=models.Q(('verified', 'failed')), fields=['run'], name='action_unproven'),
        ),
        migrations.RunSQL(
            "ALTER TABLE ledger_event DROP CONSTRAINT ledger_event_workspace_id_fkey",
            "ALTER TABLE ledger_event ADD FOREIGN KEY (workspace_id)"
            " REFERENCES workspaces_workspace (id)",
        ),
    ]
