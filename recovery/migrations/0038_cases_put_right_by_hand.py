from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("recovery", "0037_bulk_items_say_what_is_restored")]

    operations = [
        migrations.AddField(
            "case",
            "by_hand_at",
            models.DateTimeField(
                help_text="All that stood then was put right by hand, as people said;"
                " also once reopened",
                null=True,
            ),
        ),
        migrations.AddField(
            "contest",
            "reminded_at",
            models.DateTimeField(
                help_text="When those who may answer were told that it is due", null=True
            ),
        ),
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
