"""The first weeks' partitions, so that the first event finds its own; and a guard for the default."""

from django.db import migrations

from ledger import partitions


def make(apps, schema_editor):
    with schema_editor.connection.cursor() as cursor:
        partitions.guard(cursor, partitions.DEFAULT)
    try:
        partitions.make_ahead()
    except partitions.PartitionMissing as missing:
        print(f"  ({missing})")


class Migration(migrations.Migration):
    dependencies = [("ledger", "0003_effect_withdrawn")]

    operations = [migrations.RunPython(make, migrations.RunPython.noop)]
