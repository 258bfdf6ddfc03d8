from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("recovery", "0036_languages_of_people")]

    operations = [
        migrations.AddField(
            "bulkitem",
            "restores",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Digest of what that plan restores; empty of a dry run by an older version",
                max_length=64,
            ),
        ),
    ]
