import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.functions.text
import workspaces.models.directory
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('workspaces', '0005_delegations'),
    ]

    operations = [
        migrations.CreateModel(
            name='DirectoryToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=120)),
                ('prefix', models.CharField(max_length=12, unique=True)),
                ('digest', models.BinaryField(max_length=32)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('last_used_at', models.DateTimeField(null=True)),
                ('revoked_at', models.DateTimeField(null=True)),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
            options={
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='DirectoryGroup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('scim_id', models.CharField(default=workspaces.models.directory.new_id, max_length=32, unique=True)),
                ('external_id', models.CharField(blank=True, max_length=254)),
                ('members', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), default=list, help_text='Of DirectoryPerson', size=None)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('version', models.PositiveIntegerField(default=1)),
                ('gone_at', models.DateTimeField(help_text='Taken back; its team stays, empty', null=True)),
                ('team', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='directory_group', to='workspaces.team')),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
            options={
                'indexes': [django.contrib.postgres.indexes.GinIndex(fields=['members'], name='directory_members')],
            },
        ),
        migrations.CreateModel(
            name='DirectoryPerson',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('scim_id', models.CharField(default=workspaces.models.directory.new_id, max_length=32, unique=True)),
                ('user_name', models.CharField(max_length=254)),
                ('external_id', models.CharField(blank=True, max_length=254)),
                ('document', models.JSONField(default=dict, help_text='Names and addresses, as they were said')),
                ('active', models.BooleanField(default=True)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('version', models.PositiveIntegerField(default=1)),
                ('person', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
            options={
                'constraints': [models.UniqueConstraint(models.F('workspace'), django.db.models.functions.text.Lower('user_name'), name='directory_user_name'), models.UniqueConstraint(fields=('workspace', 'person'), name='directory_person_once')],
            },
        ),
    ]
