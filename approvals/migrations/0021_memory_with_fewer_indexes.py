"""The age of what rules remember is told by its id, and of a tally by an index of ranges, which a
call that writes the row again need not touch.
"""

from django.contrib.postgres.indexes import BrinIndex
from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("approvals", "0020_memory_without_checks")]

    operations = [
        AddIndexConcurrently("tally", BrinIndex(fields=["touched_at"], name="tally_ages")),
        RemoveIndexConcurrently("tally", "tally_by_age"),
        RemoveIndexConcurrently("reservation", "reservation_by_age"),
        RemoveIndexConcurrently("sighting", "sighting_by_age"),
    ]
