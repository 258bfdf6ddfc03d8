from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("recovery", "0029_reports_by_the_databases_clock")]

    operations = [
        AddIndexConcurrently(
            "case",
            models.Index(
                fields=["workspace", "snoozed_until"],
                condition=models.Q(("state", "closed"), _negated=True)
                & models.Q(without_effects=False),
                name="case_open_by_snooze",
            ),
        ),
        AddIndexConcurrently(
            "case",
            models.Index(
                fields=["workspace", "closed_at"],
                include=["outcome", "without_effects"],
                condition=models.Q(closed_at__isnull=False),
                name="case_closings",
            ),
        ),
        RemoveIndexConcurrently("case", "case_by_closing"),
    ]
