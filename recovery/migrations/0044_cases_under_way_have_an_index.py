from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("recovery", "0043_closed_cases_are_asked_of_an_index")]

    operations = [
        AddIndexConcurrently(
            "case",
            models.Index(
                fields=["workspace", "state", "-risk_rank", "-failed_at", "-id"],
                condition=Q(state__in=["waiting", "recovering", "resuming"]),
                name="case_under_way",
            ),
        ),
    ]
