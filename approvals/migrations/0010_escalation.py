import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


HOLDS_UP = {
    "adding-foreign-key-constraint": "approvals are some thousands: milliseconds",
    "require-concurrent-index-creation": "approvals are some thousands: milliseconds",
}


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0009_named_lists'),
        ('ledger', '0001_squashed_0019_record_repaired'),
        ('workspaces', '0004_named_lists'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='approval',
            name='escalate_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='approval',
            name='escalated_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='requirement',
            name='escalated_to',
            field=models.ForeignKey(db_index=False, help_text='Asked, too, since nobody had decided in time', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='workspaces.team'),
        ),
        migrations.AddIndex(
            model_name='approval',
            index=models.Index(condition=models.Q(('escalate_at__isnull', False), ('escalated_at', None), ('state', 'waiting')), fields=['escalate_at'], name='approval_escalating'),
        ),
    ]
