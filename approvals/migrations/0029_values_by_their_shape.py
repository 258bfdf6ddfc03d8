"""Values that calls were begun with have one index instead of two, and a tally is written again
where it stands, so that none of its indexes has to be.

The version before finds a value in the new index, too, but reads all values of its field for it:
while processes are replaced, a rule with `known` takes it longer.
"""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("approvals", "0028_days_of_gate_keys")]

    operations = [
        migrations.RunSQL(
            "ALTER TABLE approvals_tally SET (fillfactor = 70)",
            "ALTER TABLE approvals_tally RESET (fillfactor)",
        ),
        AddIndexConcurrently(
            "sighting",
            models.Index(fields=["workspace", "field", "shape", "value", "-id"], name="sighting_of_value_by_shape"),
        ),
        RemoveIndexConcurrently("sighting", "sighting_of_value"),
        RemoveIndexConcurrently("sighting", "sighting_of_shape"),
    ]
