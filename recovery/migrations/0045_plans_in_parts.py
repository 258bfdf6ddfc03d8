from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("recovery", "0044_cases_under_way_have_an_index")]

    operations = [
        migrations.AddField(
            "plan",
            "more_standing",
            models.PositiveIntegerField(
                default=0,
                db_default=0,
                help_text="Effects for which it had no room: the next plan's",
            ),
        ),
    ]
