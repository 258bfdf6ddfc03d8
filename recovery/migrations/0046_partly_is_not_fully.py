from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("recovery", "0045_plans_in_parts")]

    operations = [
        migrations.AlterField(
            "case",
            "outcome",
            models.CharField(
                blank=True,
                choices=[
                    ("restored", "Restored"),
                    ("corrected", "Corrected"),
                    ("resumed", "Resumed"),
                    ("partly", "Not fully restored"),
                    ("expected", "Expected"),
                    ("already_handled", "Already handled"),
                    ("duplicate", "Duplicate"),
                ],
                max_length=16,
            ),
        ),
    ]
