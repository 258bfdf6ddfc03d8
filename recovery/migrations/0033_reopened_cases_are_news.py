from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("recovery", "0032_steps_keep_what_they_restore")]

    operations = [
        AddIndexConcurrently(
            "case",
            models.Index(
                fields=["workspace", "reopened_at"],
                condition=models.Q(reopened_at__isnull=False),
                name="case_reopenings",
            ),
        ),
    ]
