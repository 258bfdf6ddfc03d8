import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ledger", "0001_squashed_0019_record_repaired")]

    operations = [
        migrations.CreateModel(
            name="AuditRound",
            fields=[
                ("workspace", models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, serialize=False, to="workspaces.workspace")),
                ("next_index", models.BigIntegerField(default=0)),
                ("after_place", models.BigIntegerField(default=-(2**63), help_text="Of events looked at last")),
                ("emptied", models.BigIntegerField(default=0, help_text="Emptied payloads met in this round")),
                ("went_round_at", models.DateTimeField(help_text="When it came to the end last", null=True)),
                ("wrong", models.CharField(blank=True, help_text="Empty where all is well", max_length=1000)),
                ("wrong_from", models.BigIntegerField(default=0, help_text="Where the portion that is wrong began")),
            ],
        ),
    ]
