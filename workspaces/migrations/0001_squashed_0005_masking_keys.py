"""Who works here: the tables, and what the database itself is asked.

Whether a person's address is proven, and whether two people count as two
(workspaces/independence.py).
"""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.functions.text
import workspaces.models
from django.conf import settings
from django.db import migrations, models

FUNCTIONS = """
CREATE FUNCTION workspaces_address_is_proven(who bigint) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM account_emailaddress a JOIN workspaces_user p ON p.id = a.user_id
        WHERE a.user_id = who AND a.verified AND lower(a.email) = lower(p.email));
END $$;
CREATE FUNCTION workspaces_is_independent(who bigint, others bigint[], here bigint)
RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
    since timestamptz := (SELECT statement_timestamp() - make_interval(secs => w.probation_seconds)
        FROM workspaces_workspace w WHERE w.id = here);
    ours bigint[];
    theirs bigint[];
BEGIN
    IF NOT EXISTS (SELECT FROM workspaces_membership m
            WHERE m.workspace_id = here AND m.added_at > since)
        OR EXISTS (SELECT FROM workspaces_workspace w WHERE w.id = here AND w.founder_id = who)
    THEN
        RETURN NOT (who = ANY (array_remove(others, NULL)));
    END IF;
    ours := who || ARRAY(SELECT unnest(m.sponsors) FROM workspaces_membership m
        WHERE m.workspace_id = here AND m.added_at > since AND m.vouched_at IS NULL
            AND m.person_id = who);
    theirs := array_remove(others, NULL) || ARRAY(
        SELECT unnest(m.sponsors) FROM workspaces_membership m
        WHERE m.workspace_id = here AND m.added_at > since AND m.vouched_at IS NULL
            AND m.person_id = ANY (others));
    RETURN NOT (ours && theirs);
END $$;
"""


class Migration(migrations.Migration):

    replaces = [('workspaces', '0001_initial'), ('workspaces', '0002_mail_approvals'), ('workspaces', '0003_heartbeat_failing'), ('workspaces', '0004_who_brought_whom_in'), ('workspaces', '0005_masking_keys')]

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
    ]

    operations = [
        migrations.CreateModel(
            name='Heartbeat',
            fields=[
                ('name', models.CharField(max_length=60, primary_key=True, serialize=False)),
                ('beat_at', models.DateTimeField()),
                ('every_seconds', models.FloatField()),
                ('last_error', models.TextField(blank=True)),
                ('failing_since', models.DateTimeField(null=True)),
                ('told_at', models.DateTimeField(help_text='When people were told that it stopped', null=True)),
            ],
        ),
        migrations.CreateModel(
            name='SetupLink',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('expires_at', models.DateTimeField()),
                ('used_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='User',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('password', models.CharField(max_length=128, verbose_name='password')),
                ('last_login', models.DateTimeField(blank=True, null=True, verbose_name='last login')),
                ('is_superuser', models.BooleanField(default=False, help_text='Designates that this user has all permissions without explicitly assigning them.', verbose_name='superuser status')),
                ('email', models.EmailField(max_length=254, unique=True)),
                ('name', models.CharField(blank=True, max_length=120)),
                ('timezone', models.CharField(blank=True, max_length=64)),
                ('single_keys', models.BooleanField(default=True, help_text='Single-key shortcuts (WCAG 2.1.4)')),
                ('mail_approvals', models.BooleanField(default=True, help_text='Write to them when an approval waits for them, and of its end')),
                ('is_active', models.BooleanField(default=True)),
                ('is_staff', models.BooleanField(default=False)),
                ('date_joined', models.DateTimeField(auto_now_add=True)),
                ('groups', models.ManyToManyField(blank=True, help_text='The groups this user belongs to. A user will get all permissions granted to each of their groups.', related_name='user_set', related_query_name='user', to='auth.group', verbose_name='groups')),
                ('user_permissions', models.ManyToManyField(blank=True, help_text='Specific permissions for this user.', related_name='user_set', related_query_name='user', to='auth.permission', verbose_name='user permissions')),
            ],
        ),
        migrations.CreateModel(
            name='Agent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.SlugField(max_length=80)),
                ('description', models.CharField(blank=True, max_length=400)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('owner', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='Workspace',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('slug', models.SlugField(max_length=48, unique=True)),
                ('name', models.CharField(max_length=120)),
                ('timezone', models.CharField(default='UTC', max_length=64)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('mask', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=200), blank=True, default=list, size=None)),
                ('mask_shows_last4', models.BooleanField(db_default=False, default=False, help_text='Of cards and IBANs, for who may see payloads')),
                ('capture_intent', models.BooleanField(default=True)),
                ('capture_snapshot', models.BooleanField(default=True)),
                ('retention_days', models.PositiveIntegerField(default=90)),
                ('stuck_after_seconds', models.PositiveIntegerField(default=900)),
                ('probation_seconds', models.PositiveIntegerField(db_default=86400, default=86400, help_text='How long a new member does not count for whoever brought them in')),
                ('masking_key', models.BinaryField(default=workspaces.models.new_masking_key, help_text='Sealed; what tells masked values apart is made with it')),
                ('founder', models.ForeignKey(help_text='Nobody brought them in, so they count from the first day', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'permissions': [('view', 'Can read the queue, the runs and the ledger'), ('view_sensitive', 'Can reveal payloads; each reveal is recorded'), ('recover', 'Can compensate, resume, settle and close'), ('approve', 'Can decide on approvals'), ('administer', 'Can change members, keys, connections and policy')],
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='Team',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=80)),
                ('group', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='team', to='auth.group')),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='teams', to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='Secret',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=120)),
                ('sealed', models.BinaryField()),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('rotated_at', models.DateTimeField(null=True)),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='secrets', to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='PersonToken',
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
                ('person', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tokens', to=settings.AUTH_USER_MODEL)),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
            options={
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='Membership',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('sponsors', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), default=list, size=None)),
                ('added_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('vouched_at', models.DateTimeField(help_text='When somebody at the server said that they count at once', null=True)),
                ('added_by', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('person', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to=settings.AUTH_USER_MODEL)),
                ('team', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.team')),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='Invitation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('email', models.EmailField(max_length=254)),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('expires_at', models.DateTimeField()),
                ('accepted_at', models.DateTimeField(null=True)),
                ('withdrawn_at', models.DateTimeField(null=True)),
                ('invited_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL)),
                ('teams', models.ManyToManyField(to='workspaces.team')),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='invitations', to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='APIKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=120)),
                ('prefix', models.CharField(max_length=12, unique=True)),
                ('digest', models.BinaryField(max_length=32)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('last_used_at', models.DateTimeField(null=True)),
                ('revoked_at', models.DateTimeField(null=True)),
                ('scopes', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=20), default=list, size=None)),
                ('trusted_runtime', models.BooleanField(default=False, help_text='Its snapshots and classes are believed, for no model can write them')),
                ('agent', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='keys', to='workspaces.agent')),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
            options={
                'abstract': False,
            },
        ),
        migrations.AddField(
            model_name='agent',
            name='workspace',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='agents', to='workspaces.workspace'),
        ),
        migrations.CreateModel(
            name='Act',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('type', models.CharField(max_length=60)),
                ('data', models.JSONField(default=dict)),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('taken_in_at', models.DateTimeField(null=True)),
                ('person', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL)),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='WorkspaceGroupPermission',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('content_object', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
                ('group', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='auth.group')),
                ('permission', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='auth.permission')),
            ],
            options={
                'abstract': False,
            },
        ),
        migrations.AddConstraint(
            model_name='user',
            constraint=models.UniqueConstraint(django.db.models.functions.text.Lower('email'), name='user_email_without_case'),
        ),
        migrations.AddConstraint(
            model_name='team',
            constraint=models.UniqueConstraint(fields=('workspace', 'name'), name='team_name_in_workspace'),
        ),
        migrations.AddIndex(
            model_name='secret',
            index=models.Index(fields=['workspace', 'name'], name='secret_by_name'),
        ),
        migrations.AddIndex(
            model_name='membership',
            index=models.Index(fields=['workspace', 'added_at'], name='newest_members'),
        ),
        migrations.AddConstraint(
            model_name='membership',
            constraint=models.UniqueConstraint(fields=('team', 'person'), name='one_membership_each'),
        ),
        migrations.AddConstraint(
            model_name='agent',
            constraint=models.UniqueConstraint(fields=('workspace', 'name'), name='agent_name_in_workspace'),
        ),
        migrations.AddIndex(
            model_name='act',
            index=models.Index(condition=models.Q(('taken_in_at__isnull', True)), fields=['id'], name='act_not_taken_in'),
        ),
        migrations.AlterUniqueTogether(
            name='workspacegrouppermission',
            unique_together={('group', 'permission', 'content_object')},
        ),
        migrations.RunSQL(FUNCTIONS),
    ]
