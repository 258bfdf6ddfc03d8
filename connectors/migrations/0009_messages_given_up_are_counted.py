from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("connectors", "0008_connections_on_the_record")]

    operations = [
        AddIndexConcurrently(
            "delivery",
            models.Index(
                fields=["next_try_at"], name="delivery_failed", condition=Q(state="failed")
            ),
        ),
    ]
