from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workspaces", "0012_whom_the_directory_deleted")]

    operations = [
        migrations.AddField(
            model_name="secret",
            name="account",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Whose account it opens, as the outside system said when it was entered",
                max_length=200,
            ),
        ),
    ]
