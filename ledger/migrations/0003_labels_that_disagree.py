"""A run that was begun with two sets of labels has none that a rule could ask for: where a policy
reads labels, its calls are not for the usual `begin`, whatever it saw of them before.
"""

from typing import Any

from django.db import migrations

PARTS = (
    ("r.labels, r.forgotten_at INTO met", "r.labels, r.forgotten_at, r.flags INTO met"),
    (
        "(labels_seen IS NOT NULL AND met.labels <> labels_seen)",
        "(labels_seen IS NOT NULL"
        " AND (met.labels <> labels_seen OR 'disagree:labels' = ANY(met.flags)))",
    ),
)


def replaced(schema_editor: Any, parts: "list[tuple[str, str]]") -> None:
    """The function with some words of it in place of others; the rest stays as it stands."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_functiondef('ledger_begin'::regproc)")
        text = cursor.fetchone()[0]
        for old, new in parts:
            if text.count(old) != 1:
                raise ValueError(f"ledger_begin does not say “{old}” once")
            text = text.replace(old, new)
        cursor.execute(text)


def forwards(_apps: Any, schema_editor: Any) -> None:
    replaced(schema_editor, list(PARTS))


def backwards(_apps: Any, schema_editor: Any) -> None:
    replaced(schema_editor, [(new, old) for old, new in PARTS])


class Migration(migrations.Migration):
    dependencies = [("ledger", "0002_audit_rounds")]
    operations = [migrations.RunPython(forwards, backwards)]
