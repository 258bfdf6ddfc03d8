from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("recovery", "0031_opened_by_the_databases_clock")]

    operations = [
        migrations.AddField(
            "step",
            "before",
            models.JSONField(
                null=True,
                help_text="[what is to be restored], [] if not recorded; NULL: an older version",
            ),
        ),
    ]
