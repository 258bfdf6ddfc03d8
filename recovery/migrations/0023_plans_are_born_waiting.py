"""No plan was ever a draft: it is born waiting for its approval.

The update is for rows that an unreleased version may have made.
"""

from django.conf import settings
from django.db import migrations, models


HOLDS_UP = {
    "ban-drop-constraint": "it is taken away and put back, narrower, in the same transaction",
    "constraint-missing-not-valid": "plans are some thousands and `begin` reads none: milliseconds",
    "update-in-batches": "only versions that were never released wrote such a row",
}


class Migration(migrations.Migration):

    dependencies = [
        ('ledger', '0001_squashed_0019_record_repaired'),
        ('recovery', '0001_squashed_0022_case_moves'),
        ('workspaces', '0001_squashed_0005_masking_keys'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='plan',
            name='plan_moves',
        ),
        migrations.RunSQL(
            "UPDATE recovery_plan SET was = '' WHERE was = 'draft'", migrations.RunSQL.noop
        ),
        migrations.AlterField(
            model_name='plan',
            name='state',
            field=models.CharField(choices=[('waiting', 'Waiting'), ('starting', 'Starting'), ('running', 'Running'), ('finished', 'Finished'), ('stopped', 'Stopped'), ('rejected', 'Rejected'), ('superseded', 'Superseded')], default='waiting', max_length=10),
        ),
        migrations.AddConstraint(
            model_name='plan',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'waiting'), ('was', '')), models.Q(('state', 'finished'), ('was', 'running')), models.Q(('state', 'stopped'), ('was', 'running')), models.Q(('state', 'superseded'), ('was', 'running')), models.Q(('state', 'running'), ('was', 'starting')), models.Q(('state', 'stopped'), ('was', 'starting')), models.Q(('state', 'superseded'), ('was', 'starting')), models.Q(('state', 'superseded'), ('was', 'stopped')), models.Q(('state', 'rejected'), ('was', 'waiting')), models.Q(('state', 'running'), ('was', 'waiting')), models.Q(('state', 'starting'), ('was', 'waiting')), models.Q(('state', 'stopped'), ('was', 'waiting')), models.Q(('state', 'superseded'), ('was', 'waiting')), _connector='OR'), name='plan_moves'),
        ),
    ]
