import datetime
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('workspaces', '0004_named_lists'),
    ]

    operations = [
        migrations.CreateModel(
            name='Delegation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('reason', models.CharField(max_length=400)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('starts_at', models.DateTimeField()),
                ('until', models.DateTimeField()),
                ('begun_at', models.DateTimeField(help_text='When the ledger was told of its begin', null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('end', models.CharField(blank=True, choices=[('time', 'its time was over'), ('revoked', 'it was revoked'), ('lost', 'one of the two no longer had what it takes')], max_length=7)),
                ('delegate', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='delegations_held', to=settings.AUTH_USER_MODEL)),
                ('delegator', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='delegations_given', to=settings.AUTH_USER_MODEL)),
                ('ended_by', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('team', models.ForeignKey(db_index=False, help_text='Only what this team is asked', null=True, on_delete=django.db.models.deletion.PROTECT, to='workspaces.team')),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('ended_at', None)), fields=['delegate'], name='delegation_of_delegate')],
                'constraints': [models.CheckConstraint(condition=models.Q(('until__gt', models.F('starts_at')), ('until__lte', django.db.models.expressions.CombinedExpression(models.F('starts_at'), '+', models.Value(datetime.timedelta(days=90))))), name='delegation_has_an_end'), models.CheckConstraint(condition=models.Q(('delegator', models.F('delegate')), _negated=True), name='delegation_to_somebody_else'), models.CheckConstraint(condition=models.Q(models.Q(('end', ''), ('ended_at', None)), models.Q(('end__in', ['time', 'revoked', 'lost']), ('ended_at__isnull', False)), _connector='OR'), name='delegation_ended_somehow')],
            },
        ),
    ]
