"""Since when a loop fails, and when people were told that it stopped."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("workspaces", "0002_mail_approvals")]

    operations: ClassVar = [
        migrations.AddField("heartbeat", "failing_since", models.DateTimeField(null=True)),
        migrations.AddField(
            "heartbeat",
            "told_at",
            models.DateTimeField(help_text="When people were told that it stopped", null=True),
        ),
    ]
