"""A call that passed no gate has a place in the order of its run that nobody has judged: where its
agent did not say one either, what may not follow a pivot is not for the usual `begin`.
"""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q

CHANGED = """
DO $do$
DECLARE
    body text := pg_get_functiondef('ledger_begin'::regproc);
BEGIN
    IF strpos(body, {asked}) = 0 THEN
        RAISE EXCEPTION 'ledger_begin is not as it was left';
    END IF;
    EXECUTE replace(body, {asked}, {asked_now});
END $do$
"""
ASKED = "'a.run_id = run_row AND a.saga = ''pivot''))'"
ASKED_NOW = (
    "'a.run_id = run_row AND a.saga = ''pivot''"
    " UNION ALL SELECT FROM ledger_action a WHERE a.run_id = run_row AND a.saga = ''''"
    " AND a.fence = 0 AND a.state IN (''running'', ''unknown'', ''succeeded'')))'"
)


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("ledger", "0009_runs_that_ended_badly")]
    operations = [
        AddIndexConcurrently(
            "action",
            models.Index(
                fields=["run"], condition=Q(saga="", fence=0), name="action_without_place"
            ),
        ),
        migrations.RunSQL(
            CHANGED.format(asked=ASKED, asked_now=ASKED_NOW),
            CHANGED.format(asked=ASKED_NOW, asked_now=ASKED),
        ),
    ]
