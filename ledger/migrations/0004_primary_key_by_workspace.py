"""An event's primary key begins with its workspace, whose events the pages walk by place: one index
does what two did. The old one of places went downwards, so that every new event split a page.

The new index of each week is built while agents write; then the keys change hands in a moment.
"""

from django.db import migrations, models, transaction

OLD_KEY, NEW_KEY = ("place", "received_at"), ("workspace_id", "place", "received_at")
NEWEST = "CREATE INDEX ledger_event_newest ON ledger_event (workspace_id, place DESC)"
PARTITIONS = """
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'ledger_event'::regclass ORDER BY c.relname"""
# What an upgrade that was cut off left half built.
IS_INVALID = """
SELECT EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass(%s) AND NOT indisvalid)"""


def by_workspace(apps, schema_editor):
    _change(schema_editor.connection, NEW_KEY, ["DROP INDEX IF EXISTS ledger_event_newest"])


def by_place(apps, schema_editor):
    _change(schema_editor.connection, OLD_KEY, [NEWEST])


def _change(connection, columns, more):
    with connection.cursor() as cursor:
        for week in _weeks(cursor):
            index = f"{week}_next_key"
            cursor.execute(IS_INVALID, [index])
            if cursor.fetchone()[0]:
                cursor.execute(f"DROP INDEX CONCURRENTLY {index}")
            cursor.execute(
                f"CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS {index}"
                f" ON {week} ({', '.join(columns)})"
            )
        with transaction.atomic(using=connection.alias):
            cursor.execute("LOCK TABLE ledger_event IN ACCESS EXCLUSIVE MODE")
            for statement in more:
                cursor.execute(statement)
            cursor.execute("ALTER TABLE ledger_event DROP CONSTRAINT ledger_event_pkey")
            cursor.execute(
                f"ALTER TABLE ONLY ledger_event ADD CONSTRAINT ledger_event_pkey"
                f" PRIMARY KEY ({', '.join(columns)})"
            )
            for week in _weeks(cursor):  # one may have been made meanwhile, and is empty
                index = f"{week}_next_key"
                cursor.execute(
                    f"CREATE UNIQUE INDEX IF NOT EXISTS {index} ON {week} ({', '.join(columns)})"
                )
                cursor.execute(
                    f"ALTER TABLE {week} ADD CONSTRAINT {week}_pkey PRIMARY KEY USING INDEX {index}"
                )
                cursor.execute(f"ALTER INDEX ledger_event_pkey ATTACH PARTITION {week}_pkey")


def _weeks(cursor):
    cursor.execute(PARTITIONS)
    return [week for (week,) in cursor.fetchall()]


HOLDS_UP = {
    "update-in-batches": "It changes no row: indexes are built CONCURRENTLY, week by week, and then "
    "keys change hands in one transaction that only writes the catalogue.",
}


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("ledger", "0003_labels_that_disagree")]
    operations = [
        migrations.RunPython(by_workspace, by_place),
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AlterField("event", "pk", models.CompositePrimaryKey(*NEW_KEY))
            ]
        ),
    ]
