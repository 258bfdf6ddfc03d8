from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("recovery", "0034_steps_in_doubt_are_left_to_people")]

    operations = [
        AddIndexConcurrently(
            "case",
            models.Index(
                fields=["id"],
                condition=Q(state="closed", corrections_drafted_at=None)
                & (
                    Q(outcome__in=("restored", "corrected", "partly"))
                    | Q(outcome="expected", closed_by=None)
                ),
                name="case_without_its_letter",
            ),
        ),
        RemoveIndexConcurrently("case", "case_to_be_told_of"),
    ]
