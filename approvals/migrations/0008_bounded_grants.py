import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


HOLDS_UP = {
    "ban-drop-constraint": "it is taken away and put back, wider, in the same transaction",
    "constraint-missing-not-valid": "approvals are some thousands: milliseconds",
}


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0007_changed_arguments'),
        ('ledger', '0001_squashed_0019_record_repaired'),
        ('workspaces', '0002_compact_lists'),
    ]

    operations = [
        migrations.CreateModel(
            name='GrantUse',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=200)),
                ('run_ref', models.CharField(max_length=120)),
                ('action', models.CharField(max_length=120)),
                ('amount', models.DecimalField(decimal_places=10, max_digits=40)),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('agent', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.agent')),
                ('approval', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='uses', to='approvals.approval')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('approval', 'agent', 'key'), name='drawn_once_per_key')],
            },
        ),
        migrations.RemoveConstraint(
            model_name='approval',
            name='approval_has_one_subject',
        ),
        migrations.AlterField(
            model_name='approval',
            name='subject_kind',
            field=models.CharField(choices=[('action', 'Action'), ('plan', 'Plan'), ('grant', 'Grant')], max_length=6),
        ),
        migrations.AddConstraint(
            model_name='approval',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('action__isnull', False), ('plan_id__isnull', True), ('subject_kind', 'action')), models.Q(('action__isnull', True), ('plan_id__isnull', False), ('subject_kind', 'plan')), models.Q(('action__isnull', True), ('plan_id__isnull', True), ('subject_kind', 'grant')), _connector='OR'), name='approval_has_one_subject'),
        ),
    ]
