from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("recovery", "0038_cases_put_right_by_hand")]

    operations = [
        AddIndexConcurrently(
            "case",
            models.Index(
                fields=["id"],
                condition=Q(
                    state="closed",
                    corrections_drafted_at=None,
                    outcome="already_handled",
                    by_hand_at__isnull=False,
                ),
                name="case_by_hand_to_be_told",
            ),
        ),
    ]
