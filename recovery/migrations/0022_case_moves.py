"""Cases keep the state that they came from, and the database checks each move of theirs.

The trigger writes it, for processes of the version before, which move cases and know no such column.
Of rows that are there the move is taken to be the usual one, out of the queue.
"""

from django.conf import settings
from django.db import migrations, models

KEEP = """
CREATE FUNCTION case_keeps_where_it_was() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.was := OLD.state;
    RETURN NEW;
END $$;
CREATE TRIGGER case_was BEFORE UPDATE OF state ON recovery_case FOR EACH ROW
    WHEN (NEW.state IS DISTINCT FROM OLD.state) EXECUTE FUNCTION case_keeps_where_it_was();
"""
FORGET = """
DROP TRIGGER case_was ON recovery_case;
DROP FUNCTION case_keeps_where_it_was();
"""
FILL = "UPDATE recovery_case SET was = 'open' WHERE state <> 'open'"


class Migration(migrations.Migration):

    dependencies = [
        ('ledger', '0019_record_repaired'),
        ('recovery', '0021_failures_without_effects'),
        ('workspaces', '0005_masking_keys'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='case',
            name='was',
            field=models.CharField(blank=True, db_default='', default='', max_length=10),
        ),
        migrations.RunSQL(KEEP, FORGET),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.AddConstraint(
            model_name='case',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'open'), ('was', '')), models.Q(('state', 'open'), ('was', 'closed')), models.Q(('state', 'closed'), ('was', 'open')), models.Q(('state', 'recovering'), ('was', 'open')), models.Q(('state', 'resuming'), ('was', 'open')), models.Q(('state', 'waiting'), ('was', 'open')), models.Q(('state', 'closed'), ('was', 'recovering')), models.Q(('state', 'open'), ('was', 'recovering')), models.Q(('state', 'closed'), ('was', 'resuming')), models.Q(('state', 'open'), ('was', 'resuming')), models.Q(('state', 'recovering'), ('was', 'resuming')), models.Q(('state', 'waiting'), ('was', 'resuming')), models.Q(('state', 'open'), ('was', 'waiting')), models.Q(('state', 'recovering'), ('was', 'waiting')), _connector='OR'), name='case_moves'),
        ),
    ]
