"""What steps of plans hold of sums and counts is found by their plan; no call writes this index."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("approvals", "0022_settings_and_wishes_on_the_record")]

    operations = [
        AddIndexConcurrently(
            "reservation",
            models.Index(
                condition=models.Q(("action", "")), fields=["run_ref"], name="reservation_of_plan"
            ),
        ),
    ]
