from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("connectors", "0006_feeds")]

    operations = [
        migrations.AddField(
            model_name="connection",
            name="link",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Where people find a record in the system's own pages",
                max_length=500,
            ),
        ),
    ]
