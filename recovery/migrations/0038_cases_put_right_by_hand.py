from django.db import migrations, models


class Migration(migrations.Migration):
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
    ]
