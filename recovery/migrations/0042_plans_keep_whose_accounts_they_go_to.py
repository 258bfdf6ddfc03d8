from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("recovery", "0041_open_cases_are_asked_of_an_index")]

    operations = [
        migrations.AddField(
            model_name="plan",
            name="accounts",
            field=models.JSONField(
                help_text="By connection and purpose, whose account; NULL: an older version",
                null=True,
            ),
        ),
    ]
