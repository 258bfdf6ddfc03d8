"""How old keys are is told by days: an index of moments was written anew for every call."""

from datetime import UTC

from django.contrib.postgres.indexes import BrinIndex
from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations
from django.db.models.functions import TruncDate


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("approvals", "0027_related_names")]
    operations = [
        AddIndexConcurrently(
            "gatekey",
            BrinIndex(TruncDate("met_at", tzinfo=UTC), autosummarize=True, name="gate_key_days"),
        ),
        RemoveIndexConcurrently("gatekey", "gate_key_ages"),
        # Without statistics of the day all keys are read for those that are old.
        migrations.RunSQL("ANALYZE approvals_gatekey", migrations.RunSQL.noop),
    ]
