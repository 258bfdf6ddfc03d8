from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("ledger", "0008_runs_of_which_actions_are_erased")]

    operations = [
        AddIndexConcurrently(
            "run",
            models.Index(
                fields=["workspace", "state", "-started_at", "-id"],
                name="run_ended_badly",
                condition=Q(state__in=["failed", "cancelled"]),
            ),
        ),
    ]
