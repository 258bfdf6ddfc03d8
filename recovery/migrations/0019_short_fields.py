"""Patterns over short fields find their cases by trigrams."""

from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.operations import TrigramExtension
from django.db import migrations

SHORT = ["failed_target", "failed_tool", "customer", "customer_name"]


class Migration(migrations.Migration):
    dependencies = [("recovery", "0018_one_active_step_again")]

    operations = [
        TrigramExtension(),
        migrations.AddIndex(
            model_name="case",
            index=GinIndex(
                fields=SHORT, opclasses=["gin_trgm_ops"] * len(SHORT), name="case_short_fields"
            ),
        ),
    ]
