"""Patterns over short fields find their cases by trigrams.

The index is built while cases come in. One that was interrupted has left an index that answers
nothing, so it is taken away first.
"""

from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.operations import AddIndexConcurrently, TrigramExtension
from django.db import migrations

SHORT = ["failed_target", "failed_tool", "customer", "customer_name"]
LEFT = "DROP INDEX CONCURRENTLY IF EXISTS case_short_fields"


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("recovery", "0018_one_active_step_again")]

    operations = [
        TrigramExtension(),
        migrations.RunSQL(LEFT, migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name="case",
            index=GinIndex(
                fields=SHORT, opclasses=["gin_trgm_ops"] * len(SHORT), name="case_short_fields"
            ),
        ),
    ]
