"""How old keys are is told by days: an index of moments was written anew for every event. And the
index of a tool's actions goes upwards, as they come: downwards every page of it was half empty.
"""

from datetime import UTC

from django.contrib.postgres.indexes import BrinIndex
from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models.functions import TruncDate


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("ledger", "0004_primary_key_by_workspace")]
    operations = [
        AddIndexConcurrently(
            "eventkey",
            BrinIndex(
                TruncDate("received_at", tzinfo=UTC), autosummarize=True, name="event_key_ages"
            ),
        ),
        RemoveIndexConcurrently("eventkey", "event_key_by_age"),
        AddIndexConcurrently(
            "action", models.Index(fields=["workspace", "tool", "id"], name="action_of_tool")
        ),
        RemoveIndexConcurrently("action", "action_by_tool"),
        # Without statistics of the day all keys are read for those that are old.
        migrations.RunSQL("ANALYZE ledger_eventkey", migrations.RunSQL.noop),
    ]
