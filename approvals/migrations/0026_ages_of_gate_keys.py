"""Which keys are old is told by an index of ranges: a call writes no entry of its own into it."""

from django.contrib.postgres.indexes import BrinIndex
from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("approvals", "0025_what_the_ledger_tells")]

    operations = [
        AddIndexConcurrently(
            "gatekey", BrinIndex(fields=["met_at"], autosummarize=True, name="gate_key_ages")
        ),
        RemoveIndexConcurrently("gatekey", "gate_key_by_age"),
    ]
