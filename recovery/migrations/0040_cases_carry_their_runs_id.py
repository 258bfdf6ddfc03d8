from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("recovery", "0039_cases_by_hand_to_be_told")]

    operations = [
        migrations.AddField(
            "case",
            "run_ref",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="The id of its run, for patterns; empty of one that an older version opened",
                max_length=120,
            ),
        ),
        migrations.AddField(
            "case",
            "model",
            models.CharField(blank=True, db_default="", default="", max_length=120),
        ),
    ]
