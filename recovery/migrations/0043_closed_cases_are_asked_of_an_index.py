from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models import Q

ENDED = ["outcome", "closed_at", "due_at", "reversibility", "without_effects"]


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("recovery", "0042_plans_keep_whose_accounts_they_go_to")]

    operations = [
        AddIndexConcurrently(
            "case",
            models.Index(
                fields=["workspace", "-risk_rank", "-failed_at", "-id"],
                include=[*ENDED, "agent", "run_ref", "model", "amount_minor", "currency"],
                condition=Q(state="closed"),
                name="case_closed_as_called",
            ),
        ),
        AddIndexConcurrently(
            "case",
            GinIndex(fields=["tools", "reasons"], fastupdate=False, name="case_tools_and_reasons"),
        ),
        RemoveIndexConcurrently("case", "case_closed_by_risk"),
    ]
