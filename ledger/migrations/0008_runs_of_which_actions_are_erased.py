"""Late events about a single action that was erased are refused, as those of an erased run."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ledger", "0007_effects_that_name_a_snapshot")]
    operations = [
        migrations.AddField(
            "run",
            "has_erased_actions",
            models.BooleanField(
                default=False,
                db_default=False,
                help_text="What was said of single actions is erased; late events about these are refused",
            ),
        ),
    ]
