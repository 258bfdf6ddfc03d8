"""What changes with every event of a run is in none of its indexes any more (docs/decisions/ingest.md).

The three columns come in one statement, for each by itself would write the table anew.
"""

from datetime import UTC, datetime, timedelta
from typing import ClassVar

from django.db import migrations, models
from django.db.models import F, Q, Value
from django.db.models.lookups import LessThan

from ledger.models.runs import DateBin

COLUMNS = """
ALTER TABLE ledger_run
    ADD COLUMN is_unseen boolean NOT NULL
        GENERATED ALWAYS AS (seen_revision < revision) STORED,
    ADD COLUMN is_unsearchable boolean NOT NULL
        GENERATED ALWAYS AS (search_revision < revision) STORED,
    ADD COLUMN lease_minute timestamptz NULL
        GENERATED ALWAYS AS (date_bin('1 minute', lease_until, '2000-01-01 00:00:00+00')) STORED
"""
NO_COLUMNS = """
ALTER TABLE ledger_run DROP COLUMN is_unseen, DROP COLUMN is_unsearchable, DROP COLUMN lease_minute
"""
# Room on each page for the next version of its rows.
ROOM = "ALTER TABLE ledger_run SET (fillfactor = 80)"
NO_ROOM = "ALTER TABLE ledger_run RESET (fillfactor)"


def due(name: str) -> models.GeneratedField:
    return models.GeneratedField(
        expression=LessThan(F(name), F("revision")),
        output_field=models.BooleanField(),
        db_persist=True,
    )


class Migration(migrations.Migration):
    dependencies: ClassVar = [
        ("ledger", "0016_effects_unconstrained"),
        ("workspaces", "0003_heartbeat_failing"),
    ]

    operations: ClassVar = [
        migrations.RemoveIndex("run", "run_unseen"),
        migrations.RemoveIndex("run", "run_lease"),
        migrations.RemoveIndex("run", "run_unsearchable"),
        migrations.SeparateDatabaseAndState(
            [migrations.RunSQL(COLUMNS, NO_COLUMNS)],
            [
                migrations.AddField("run", "is_unseen", due("seen_revision")),
                migrations.AddField("run", "is_unsearchable", due("search_revision")),
                migrations.AddField(
                    "run",
                    "lease_minute",
                    models.GeneratedField(
                        expression=DateBin(
                            Value(timedelta(minutes=1)),
                            F("lease_until"),
                            Value(datetime(2000, 1, 1, tzinfo=UTC)),
                        ),
                        output_field=models.DateTimeField(null=True),
                        db_persist=True,
                        help_text="The minute in which the lease ends",
                    ),
                ),
            ],
        ),
        migrations.RunSQL(ROOM, NO_ROOM),
        migrations.AddIndex(
            "run", models.Index(fields=["id"], name="run_unseen", condition=Q(is_unseen=True))
        ),
        migrations.AddIndex(
            "run",
            models.Index(fields=["lease_minute"], name="run_lease", condition=Q(state="running")),
        ),
        migrations.AddIndex(
            "run",
            models.Index(
                fields=["id"], name="run_unsearchable", condition=Q(is_unsearchable=True)
            ),
        ),
    ]
