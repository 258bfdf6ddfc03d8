import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0012_not_before'),
        ('workspaces', '0002_compact_lists'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='approval',
            name='signed',
            field=models.BooleanField(db_default=False, default=False, help_text='Each yes is signed by the person’s own key'),
        ),
        migrations.AddField(
            model_name='decision',
            name='signature',
            field=models.JSONField(help_text='The assertion by the person’s key: credential, authenticator, client', null=True),
        ),
        migrations.CreateModel(
            name='SigningKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('credential', models.CharField(help_text='Its id, base64url', max_length=1400)),
                ('label', models.CharField(max_length=200)),
                ('event', models.CharField(help_text='Id of the enrolment in the ledger', max_length=64)),
                ('sign_count', models.BigIntegerField(default=0, help_text='The highest that it has said')),
                ('enrolled_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('removed_at', models.DateTimeField(null=True)),
                ('person', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='signing_keys', to=settings.AUTH_USER_MODEL)),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
            options={
                'constraints': [models.UniqueConstraint(condition=models.Q(('removed_at__isnull', True)), fields=('workspace', 'person', 'credential'), name='signing_key_once')],
            },
        ),
    ]
