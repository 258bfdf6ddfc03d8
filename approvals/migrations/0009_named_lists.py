import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0008_bounded_grants'),
        ('workspaces', '0004_named_lists'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='NamedList',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=60)),
                ('kind', models.CharField(help_text='How entries are written and compared', max_length=6)),
                ('version', models.PositiveIntegerField(default=0)),
                ('digest', models.CharField(blank=True, help_text='Of this version and all before', max_length=64)),
                ('count', models.PositiveIntegerField(default=0, help_text='Of the entries that stand')),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='ListEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(help_text='By which its normal form is found', max_length=32)),
                ('mark', models.CharField(blank=True, help_text='By which it is found where the policy masks it', max_length=32)),
                ('shown', models.CharField(help_text='As it was written; hidden kinds masked', max_length=300)),
                ('label', models.CharField(blank=True, max_length=200)),
                ('since', models.PositiveIntegerField(help_text='The version that brought it')),
                ('until', models.PositiveIntegerField(help_text='The version that took it off', null=True)),
                ('list', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='entries', to='approvals.namedlist')),
            ],
        ),
        migrations.CreateModel(
            name='ListChange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('version', models.PositiveIntegerField()),
                ('digest', models.CharField(max_length=64)),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('note', models.TextField(blank=True)),
                ('added', models.PositiveIntegerField()),
                ('removed', models.PositiveIntegerField()),
                ('by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('list', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='changes', to='approvals.namedlist')),
            ],
        ),
        migrations.AddConstraint(
            model_name='namedlist',
            constraint=models.UniqueConstraint(fields=('workspace', 'name'), name='list_of_a_name'),
        ),
        migrations.AddIndex(
            model_name='listentry',
            index=models.Index(condition=models.Q(('until', None), models.Q(('mark', ''), _negated=True)), fields=['list', 'mark'], name='entry_by_its_mark'),
        ),
        migrations.AddIndex(
            model_name='listentry',
            index=models.Index(condition=models.Q(('until', None)), fields=['list', '-id'], name='entry_that_stands'),
        ),
        migrations.AddIndex(
            model_name='listentry',
            index=models.Index(fields=['list', 'since'], name='entry_by_version'),
        ),
        migrations.AddIndex(
            model_name='listentry',
            index=models.Index(condition=models.Q(('until__isnull', False)), fields=['list', 'until'], name='entry_taken_off'),
        ),
        migrations.AddConstraint(
            model_name='listentry',
            constraint=models.UniqueConstraint(condition=models.Q(('until', None)), fields=('list', 'key'), name='once_on_a_list'),
        ),
        migrations.AddConstraint(
            model_name='listchange',
            constraint=models.UniqueConstraint(fields=('list', 'version'), name='one_change_a_version'),
        ),
    ]
