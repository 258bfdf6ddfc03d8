from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("recovery", "0027_snoozed_and_reminded")]

    operations = [
        AddIndexConcurrently(
            "plan",
            models.Index(
                fields=["id"],
                condition=models.Q(state="stopped", ended_at__isnull=True),
                name="plan_stopping",
            ),
        ),
    ]
