from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("workspaces", "0013_whose_account_a_credential_opens")]

    operations = [
        AddIndexConcurrently(
            "act",
            models.Index(
                fields=["workspace", "at"],
                condition=Q(type__in=["connection.secret_set", "connection.updated"]),
                name="act_of_connections",
            ),
        ),
    ]
