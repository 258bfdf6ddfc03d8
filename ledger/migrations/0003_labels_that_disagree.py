"""A run that was begun with two sets of labels has none that a rule could ask for: where a policy
reads labels, its calls are not for the usual `begin`, whatever it saw of them before.
"""

from django.db import migrations

CHANGED = """
DO $do$
DECLARE
    body text := pg_get_functiondef('ledger_begin'::regproc);
BEGIN
    IF strpos(body, {read}) = 0 OR strpos(body, {asked}) = 0 THEN
        RAISE EXCEPTION 'ledger_begin is not as it was left';
    END IF;
    EXECUTE replace(replace(body, {read}, {read_now}), {asked}, {asked_now});
END $do$
"""
READ = "'r.labels, r.forgotten_at INTO met'"
READ_NOW = "'r.labels, r.forgotten_at, r.flags INTO met'"
ASKED = "'(labels_seen IS NOT NULL AND met.labels <> labels_seen)'"
ASKED_NOW = (
    "'(labels_seen IS NOT NULL AND (met.labels <> labels_seen"
    " OR ''disagree:labels'' = ANY(met.flags)))'"
)


class Migration(migrations.Migration):
    dependencies = [("ledger", "0002_audit_rounds")]
    operations = [
        migrations.RunSQL(
            CHANGED.format(read=READ, read_now=READ_NOW, asked=ASKED, asked_now=ASKED_NOW),
            CHANGED.format(read=READ_NOW, read_now=READ, asked=ASKED_NOW, asked_now=ASKED),
        )
    ]
