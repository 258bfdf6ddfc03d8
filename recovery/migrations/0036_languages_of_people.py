from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("recovery", "0035_cases_without_their_letter")]

    operations = [
        migrations.AddField(
            "correction",
            "language",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Theirs, where it is known",
                max_length=5,
            ),
        ),
    ]
