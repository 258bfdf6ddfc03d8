import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0010_escalation'),
        ('workspaces', '0004_named_lists'),
    ]

    operations = [
        migrations.CreateModel(
            name='Review',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('run_ref', models.CharField(max_length=120)),
                ('action', models.CharField(max_length=120)),
                ('glob', models.CharField(max_length=200)),
                ('words', models.CharField(help_text="The rule's own; they name no value", max_length=400)),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
            options={
                'indexes': [models.Index(fields=['workspace', 'at'], name='review_by_age')],
                'constraints': [models.UniqueConstraint(fields=('workspace', 'run_ref', 'action', 'words'), name='looked_at_once')],
            },
        ),
    ]
