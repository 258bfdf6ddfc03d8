import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [('connectors', '0001_initial'), ('connectors', '0002_breaker'), ('connectors', '0003_channels_say_so_much'), ('connectors', '0004_settings_that_were'), ('connectors', '0005_leaner_calls')]

    initial = True

    dependencies = [
        ('workspaces', '0001_squashed_0005_masking_keys'),
    ]

    operations = [
        migrations.CreateModel(
            name='Channel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.SlugField(max_length=80)),
                ('kind', models.CharField(choices=[('mail', 'Mail'), ('slack', 'Slack-shaped webhook'), ('webhook', 'Signed webhook')], max_length=10)),
                ('settings', models.JSONField(blank=True, default=dict)),
                ('subjects', models.JSONField(blank=True, default=list, help_text='Glob patterns of the subjects it carries; empty: all')),
                ('tier', models.CharField(choices=[('outline', 'Outline: who asks, how risky, until when, and a link'), ('headline', 'Headline: also what would happen, with amount and reason')], default='outline', max_length=8)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('disabled_at', models.DateTimeField(blank=True, null=True)),
                ('secret', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='workspaces.secret')),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='channels', to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='Connection',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.SlugField(max_length=80)),
                ('connector', models.CharField(max_length=80)),
                ('settings', models.JSONField(default=dict)),
                ('sandbox_settings', models.JSONField(blank=True, default=dict, help_text='Settings that differ while rehearsing')),
                ('settings_digest', models.CharField(max_length=64)),
                ('revision', models.PositiveIntegerField(default=1)),
                ('disabled_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('last_ok_at', models.DateTimeField(blank=True, null=True)),
                ('last_error_at', models.DateTimeField(blank=True, null=True)),
                ('last_error', models.CharField(blank=True, max_length=400)),
                ('concurrency', models.PositiveSmallIntegerField(default=4, help_text='Calls over it at once; a slow system holds no more workers than that')),
                ('failures_in_a_row', models.PositiveIntegerField(default=0, editable=False)),
                ('open_until', models.DateTimeField(blank=True, editable=False, help_text='The circuit breaker lets nothing through', null=True)),
                ('compensate_secret', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='workspaces.secret')),
                ('observe_secret', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='workspaces.secret')),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='connections', to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='CallLog',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('method', models.CharField(max_length=20)),
                ('operation', models.CharField(max_length=80)),
                ('target', models.CharField(max_length=200)),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('milliseconds', models.PositiveIntegerField()),
                ('outcome', models.CharField(choices=[('ok', 'Ok'), ('applied', 'Applied'), ('no_effect', 'No Effect'), ('unknown', 'Unknown'), ('failed', 'Failed')], max_length=12)),
                ('detail', models.CharField(blank=True, max_length=400)),
                ('connection', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='calls', to='connectors.connection')),
            ],
        ),
        migrations.CreateModel(
            name='ConnectionVersion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('settings_digest', models.CharField(max_length=64)),
                ('settings', models.JSONField()),
                ('connection', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='connectors.connection')),
            ],
        ),
        migrations.CreateModel(
            name='Delivery',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('mail', 'Mail'), ('slack', 'Slack-shaped webhook'), ('webhook', 'Signed webhook')], max_length=10)),
                ('recipient', models.CharField(blank=True, help_text='Mail to one person', max_length=320)),
                ('subject', models.CharField(max_length=80)),
                ('key', models.CharField(max_length=120)),
                ('message', models.JSONField(default=dict)),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('sent', 'Sent'), ('failed', 'Failed')], default='waiting', max_length=10)),
                ('tries', models.PositiveSmallIntegerField(default=0)),
                ('next_try_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('sent_at', models.DateTimeField(blank=True, null=True)),
                ('last_error', models.CharField(blank=True, max_length=400)),
                ('channel', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='deliveries', to='connectors.channel')),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='workspaces.workspace')),
            ],
            options={
                'verbose_name_plural': 'deliveries',
            },
        ),
        migrations.AddConstraint(
            model_name='channel',
            constraint=models.UniqueConstraint(fields=('workspace', 'name'), name='channel_name_in_workspace'),
        ),
        migrations.AddConstraint(
            model_name='channel',
            constraint=models.CheckConstraint(condition=models.Q(('tier__in', ['outline', 'headline'])), name='channel_tier'),
        ),
        migrations.AddConstraint(
            model_name='channel',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', ['mail', 'slack', 'webhook'])), name='channel_kind'),
        ),
        migrations.AddConstraint(
            model_name='connection',
            constraint=models.UniqueConstraint(fields=('workspace', 'name'), name='connection_name_in_workspace'),
        ),
        migrations.AddIndex(
            model_name='calllog',
            index=models.Index(fields=['connection', '-id'], name='calllog_newest'),
        ),
        migrations.AddConstraint(
            model_name='calllog',
            constraint=models.CheckConstraint(condition=models.Q(('outcome__in', ['ok', 'applied', 'no_effect', 'unknown', 'failed'])), name='calllog_outcome'),
        ),
        migrations.AddConstraint(
            model_name='connectionversion',
            constraint=models.UniqueConstraint(fields=('connection', 'settings_digest'), name='connection_version_once'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('state', 'waiting')), fields=['next_try_at'], name='delivery_due'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(fields=['workspace', '-id'], name='delivery_newest'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.UniqueConstraint(fields=('workspace', 'key'), name='delivery_once_in_workspace'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['waiting', 'sent', 'failed'])), name='delivery_state'),
        ),
    ]
