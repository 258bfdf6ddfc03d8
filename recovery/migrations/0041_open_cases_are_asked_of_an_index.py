from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models import Q

OPEN = Q(("state", "closed"), _negated=True) & Q(without_effects=False)
ASKED = ["agent", "claimed_by", "claimed_until", "snoozed_until"]


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("recovery", "0040_cases_carry_their_runs_id")]

    operations = [
        AddIndexConcurrently(
            "case",
            models.Index(fields=["id"], condition=Q(run_ref=""), name="case_without_its_run"),
        ),
        AddIndexConcurrently(
            "case",
            models.Index(
                fields=["workspace", "-risk_rank", "-failed_at", "-id"],
                include=[*ASKED, "failed_target", "failed_tool", "amount_minor", "currency"],
                condition=OPEN,
                name="case_open_as_called",
            ),
        ),
        AddIndexConcurrently(
            "case",
            models.Index(
                fields=["workspace", "-failed_at", "-id"],
                include=[*ASKED, "risk_rank", "run_ref", "model", "customer", "customer_name"],
                condition=OPEN,
                name="case_open_as_named",
            ),
        ),
        RemoveIndexConcurrently("case", "case_open_by_risk"),
        RemoveIndexConcurrently("case", "case_open_newest"),
    ]
