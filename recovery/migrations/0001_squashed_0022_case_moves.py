"""Recovery: the tables. A case keeps the state that it came from, so that its moves can be checked; a
trigger writes it, for whatever moves cases.
"""

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.contrib.postgres.operations
import django.contrib.postgres.search
import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

KEEP = """
CREATE FUNCTION case_keeps_where_it_was() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.was := OLD.state;
    RETURN NEW;
END $$;
CREATE TRIGGER case_was BEFORE UPDATE OF state ON recovery_case FOR EACH ROW
    WHEN (NEW.state IS DISTINCT FROM OLD.state) EXECUTE FUNCTION case_keeps_where_it_was();
"""


class Migration(migrations.Migration):

    replaces = [('recovery', '0001_initial'), ('recovery', '0002_casework'), ('recovery', '0003_engine'), ('recovery', '0004_aftercare'), ('recovery', '0005_probes'), ('recovery', '0006_brief'), ('recovery', '0007_readback'), ('recovery', '0008_bulk_items'), ('recovery', '0009_counted_views'), ('recovery', '0010_tools_of_a_case'), ('recovery', '0011_causes_and_plans_by_time'), ('recovery', '0012_when_it_was_opened'), ('recovery', '0013_bulk_endings'), ('recovery', '0014_bulk_resumes_from'), ('recovery', '0015_leaner_steps'), ('recovery', '0016_corrections_still_wrong'), ('recovery', '0017_the_databases_moments'), ('recovery', '0018_one_active_step_again'), ('recovery', '0019_short_fields'), ('recovery', '0020_residue_done'), ('recovery', '0021_failures_without_effects'), ('recovery', '0022_case_moves')]

    initial = True

    dependencies = [
        ('connectors', '0001_squashed_0005_leaner_calls'),
        ('ledger', '0001_squashed_0019_record_repaired'),
        ('workspaces', '0001_squashed_0005_masking_keys'),
    ]

    operations = [
        django.contrib.postgres.operations.TrigramExtension(
        ),
        migrations.CreateModel(
            name='BulkJob',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('verb', models.CharField(max_length=12)),
                ('ending', models.CharField(blank=True, default='', help_text='As what cases are closed', max_length=16)),
                ('resume_from', models.CharField(blank=True, default='', help_text='Where runs go on: empty for the last checkpoint of each, start, named:<name>', max_length=320)),
                ('query', models.CharField(max_length=1000)),
                ('reason', models.TextField(blank=True)),
                ('started_at', models.DateTimeField(auto_now_add=True)),
                ('stopped_at', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('started_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='Cause',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('fingerprint', models.CharField(max_length=64)),
                ('tool', models.CharField(max_length=200)),
                ('error_type', models.CharField(max_length=200)),
                ('message', models.CharField(max_length=400)),
                ('first_seen_at', models.DateTimeField(auto_now_add=True)),
                ('last_seen_at', models.DateTimeField(auto_now=True)),
                ('last_closed_at', models.DateTimeField(null=True)),
                ('case_count', models.PositiveIntegerField(default=0)),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='Case',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('was', models.CharField(blank=True, db_default='', default='', max_length=10)),
                ('state', models.CharField(choices=[('open', 'Open'), ('waiting', 'Waiting for approval'), ('recovering', 'Recovering'), ('resuming', 'Resuming'), ('closed', 'Closed')], default='open', max_length=10)),
                ('revision', models.BigIntegerField(default=1, help_text='Every change posts the one it saw')),
                ('reasons', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=40), default=list, help_text='What opened it', size=None)),
                ('evidence', models.JSONField(default=list, help_text='[{code, key, words}] of the reasons now')),
                ('answered', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=200), default=list, help_text='Keys of reasons that a closing has seen; only others reopen it', size=None)),
                ('without_effects', models.BooleanField(db_default=False, default=False, help_text='Its run failed and did nothing: low, and listed in a view of its own alone')),
                ('headline', models.CharField(max_length=400)),
                ('brief', models.CharField(blank=True, help_text='The trouble alone, for a line of the queue', max_length=200)),
                ('risk', models.CharField(choices=[('low', 'Low'), ('medium', 'Medium'), ('high', 'High'), ('critical', 'Critical')], max_length=8)),
                ('risk_rank', models.PositiveSmallIntegerField(help_text='0 low … 3 critical, for sorting')),
                ('failed_tool', models.CharField(blank=True, max_length=200)),
                ('failed_target', models.CharField(blank=True, max_length=400)),
                ('tools', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=200), default=list, help_text='Every tool of the run, in lower case: tool: is asked of this row alone', size=None)),
                ('customer', models.CharField(blank=True, max_length=120)),
                ('customer_name', models.CharField(blank=True, max_length=200)),
                ('request', models.TextField(blank=True)),
                ('suggestion', models.CharField(choices=[('settle', 'Settle first'), ('resume', 'Resume'), ('compensate', 'Compensate'), ('close', 'Close')], max_length=10)),
                ('suggestion_reason', models.CharField(max_length=400)),
                ('suggestion_text', models.CharField(blank=True, help_text='Refund $1 286, restore 2 flights', max_length=400)),
                ('reversibility', models.CharField(choices=[('exact', 'Exact'), ('compensable', 'Compensable'), ('irreversible', 'Irreversible'), ('unknown', 'Unknown')], default='unknown', help_text="The plan's sign is its weakest step's", max_length=12)),
                ('needs_approval', models.CharField(blank=True, help_text='In words; empty: none', max_length=200)),
                ('amount_minor', models.BigIntegerField(null=True)),
                ('currency', models.CharField(blank=True, max_length=3)),
                ('unknown_count', models.PositiveIntegerField(default=0)),
                ('standing_count', models.PositiveIntegerField(default=0, help_text='Effects not compensated')),
                ('failed_at', models.DateTimeField()),
                ('opened_at', models.DateTimeField(auto_now_add=True)),
                ('reopened_at', models.DateTimeField(null=True)),
                ('due_at', models.DateTimeField(help_text="Policy's due time or first undo window", null=True)),
                ('claimed_until', models.DateTimeField(null=True)),
                ('closed_at', models.DateTimeField(null=True)),
                ('outcome', models.CharField(blank=True, choices=[('restored', 'Restored'), ('corrected', 'Corrected'), ('resumed', 'Resumed'), ('partly', 'Partly restored'), ('expected', 'Expected'), ('already_handled', 'Already handled'), ('duplicate', 'Duplicate')], max_length=16)),
                ('closing_reason', models.TextField(blank=True)),
                ('probes', models.PositiveSmallIntegerField(default=0, help_text='How often its unknown calls were asked for by itself')),
                ('probe_at', models.DateTimeField(null=True)),
                ('corrections_drafted_at', models.DateTimeField(null=True)),
                ('considered_revision', models.BigIntegerField(default=0, help_text='Up to which auto-compensation has looked')),
                ('search', django.contrib.postgres.search.SearchVectorField(null=True)),
                ('agent', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, to='workspaces.agent')),
                ('claimed_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='claims', to=settings.AUTH_USER_MODEL)),
                ('closed_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('failed_action', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='ledger.action')),
                ('run', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='case', to='ledger.run')),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
                ('cause', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='cases', to='recovery.cause')),
            ],
        ),
        migrations.CreateModel(
            name='Comment',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('text', models.TextField()),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('case', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='comments', to='recovery.case')),
                ('person', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='Correction',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('reference', models.CharField(help_text='AM-2F7K-09', max_length=20, unique=True)),
                ('person_id', models.CharField(max_length=120)),
                ('person_name', models.CharField(blank=True, max_length=200)),
                ('contact', models.CharField(blank=True, max_length=320)),
                ('state', models.CharField(choices=[('draft', 'Draft'), ('published', 'Published'), ('revoked', 'Revoked')], default='draft', max_length=9)),
                ('revision', models.PositiveIntegerField(default=1)),
                ('facts', models.JSONField(help_text='changed, why, restored, unchanged, not_undone, reviewed, record')),
                ('facts_salt', models.BinaryField(help_text='32 random bytes; the published event holds the digest over both', null=True)),
                ('title', models.CharField(max_length=300)),
                ('lead', models.TextField(blank=True)),
                ('wording', models.JSONField(default=dict, help_text='Edited sentences by fact id')),
                ('drafted_at', models.DateTimeField(auto_now_add=True)),
                ('published_at', models.DateTimeField(null=True)),
                ('event_id', models.CharField(blank=True, help_text='correction.published', max_length=64)),
                ('token_digest', models.CharField(blank=True, db_index=True, max_length=64)),
                ('token_sealed', models.BinaryField(null=True)),
                ('expires_at', models.DateTimeField(null=True)),
                ('revoked_at', models.DateTimeField(null=True)),
                ('first_read_at', models.DateTimeField(null=True)),
                ('read_count', models.PositiveIntegerField(default=0)),
                ('still_wrong_at', models.DateTimeField(null=True)),
                ('still_wrong_text', models.TextField(blank=True)),
                ('case', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='corrections', to='recovery.case')),
                ('published_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='CorrectionDelivery',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('channel', models.CharField(max_length=10)),
                ('address', models.CharField(blank=True, max_length=320)),
                ('message_key', models.CharField(blank=True, help_text='Of the message that connectors.channels sends', max_length=120)),
                ('state', models.CharField(default='waiting', max_length=10)),
                ('tries', models.PositiveSmallIntegerField(default=0)),
                ('next_try_at', models.DateTimeField(null=True)),
                ('sent_at', models.DateTimeField(null=True)),
                ('last_error', models.TextField(blank=True)),
                ('correction', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='recovery.correction')),
            ],
        ),
        migrations.CreateModel(
            name='Directive',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('stop', 'stop'), ('resume', 'resume')], max_length=6)),
                ('steps', models.JSONField(default=list, help_text='[{action, tool, label, key}]')),
                ('issued_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text="By the database's clock: answers are held against it")),
                ('acknowledge_by', models.DateTimeField(null=True)),
                ('acknowledged_at', models.DateTimeField(null=True)),
                ('withdrawn_at', models.DateTimeField(null=True)),
                ('checkpoint', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, to='ledger.checkpoint')),
                ('issued_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='directives', to='ledger.run')),
            ],
        ),
        migrations.CreateModel(
            name='Plan',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField()),
                ('was', models.CharField(blank=True, default='', max_length=10)),
                ('state', models.CharField(choices=[('draft', 'Draft'), ('waiting', 'Waiting'), ('starting', 'Starting'), ('running', 'Running'), ('finished', 'Finished'), ('stopped', 'Stopped'), ('rejected', 'Rejected'), ('superseded', 'Superseded')], default='draft', max_length=10)),
                ('digest', models.CharField(max_length=64)),
                ('headline', models.CharField(max_length=400)),
                ('case_revision', models.BigIntegerField()),
                ('run_revision', models.BigIntegerField()),
                ('basis', models.CharField(blank=True, help_text='Digest of the effects and doubts that it was drafted from', max_length=64)),
                ('policy_digest', models.CharField(blank=True, max_length=64)),
                ('halt_on_failure', models.BooleanField(default=False)),
                ('automatic', models.BooleanField(default=False, help_text='Started by policy, not by a person')),
                ('override_drift', models.BooleanField(default=False)),
                ('approval_id', models.BigIntegerField(null=True)),
                ('reason', models.TextField(blank=True)),
                ('drafted_at', models.DateTimeField(auto_now_add=True)),
                ('submitted_at', models.DateTimeField(null=True)),
                ('started_at', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('hinted_at', models.DateTimeField(help_text='When the sweeper last woke a worker', null=True)),
                ('case', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='plans', to='recovery.case')),
                ('drafted_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('reach', models.ForeignKey(help_text='NULL: back to the start', null=True, on_delete=django.db.models.deletion.PROTECT, to='ledger.checkpoint')),
                ('stopped_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='Readback',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('state', models.CharField(default='waiting', max_length=10)),
                ('due_at', models.DateTimeField()),
                ('tries', models.PositiveSmallIntegerField(default=0)),
                ('detail', models.CharField(blank=True, help_text='Why it was given up', max_length=400)),
                ('action', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='readback', to='ledger.action')),
            ],
        ),
        migrations.CreateModel(
            name='Report',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('source', models.CharField(choices=[('operator', 'Operator'), ('agent', 'Agent'), ('end_user', 'affected person')], max_length=8)),
                ('text', models.TextField()),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('case', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='reports', to='recovery.case')),
                ('person', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='Residue',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('text', models.TextField()),
                ('due_at', models.DateTimeField()),
                ('done_at', models.DateTimeField(null=True)),
                ('done_note', models.TextField(blank=True, help_text='What was done about it')),
                ('case', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='residues', to='recovery.case')),
                ('done_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('effect', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, to='ledger.effect')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='SavedView',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('slug', models.SlugField(max_length=60)),
                ('name', models.CharField(max_length=80)),
                ('query', models.CharField(max_length=1000)),
                ('shared', models.BooleanField(default=False)),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL)),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='Silence',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('lease_until', models.DateTimeField()),
                ('run', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='silence', to='ledger.run')),
            ],
        ),
        migrations.CreateModel(
            name='Step',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('position', models.PositiveIntegerField(help_text='1 is the newest effect and runs first')),
                ('connection_digest', models.CharField(max_length=64)),
                ('connector_version', models.CharField(max_length=40)),
                ('operation', models.CharField(max_length=120)),
                ('args', models.JSONField()),
                ('target_type', models.CharField(max_length=120)),
                ('target_id', models.CharField(max_length=400)),
                ('expected', models.JSONField(help_text='State expected just before the call', null=True)),
                ('fingerprint', models.CharField(blank=True, help_text='Digest of that state', max_length=64)),
                ('post_condition', models.JSONField(null=True)),
                ('preview', models.JSONField(default=dict)),
                ('digest', models.CharField(help_text='Of this one call', max_length=64)),
                ('risk', models.CharField(choices=[('low', 'Low'), ('medium', 'Medium'), ('high', 'High'), ('critical', 'Critical')], max_length=8)),
                ('reversibility', models.CharField(choices=[('exact', 'Exact'), ('compensable', 'Compensable'), ('irreversible', 'Irreversible'), ('unknown', 'Unknown')], max_length=12)),
                ('rules', models.JSONField(default=list)),
                ('override_drift', models.BooleanField(default=False)),
                ('was', models.CharField(blank=True, max_length=11)),
                ('state', models.CharField(choices=[('blocked', 'Blocked'), ('ready', 'Ready'), ('claimed', 'Claimed'), ('intended', 'Intended'), ('unknown', 'Unknown'), ('applied', 'Applied'), ('verified', 'Verified'), ('reported', 'Reported'), ('drifted', 'Drifted'), ('needs_human', 'Needs Human'), ('skipped', 'Skipped'), ('cancelled', 'Cancelled')], max_length=11)),
                ('moved_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('fence', models.BigIntegerField(default=0)),
                ('lease_until', models.DateTimeField(null=True)),
                ('claims', models.PositiveSmallIntegerField(default=0)),
                ('tries', models.PositiveSmallIntegerField(default=0)),
                ('generation', models.PositiveSmallIntegerField(default=1, help_text='Rises only when a named person authorises one more try')),
                ('key', models.CharField(help_text='Pure function of the undo, not of the plan', max_length=80)),
                ('wake_at', models.DateTimeField(help_text='Not before this: back-off or probe horizon', null=True)),
                ('probes', models.PositiveSmallIntegerField(default=0)),
                ('note', models.TextField(blank=True, help_text='Why it stands where it stands, for people')),
                ('drift', models.JSONField(help_text='[{field, was, agent_wrote, now}]', null=True)),
                ('evidence', models.JSONField(null=True)),
                ('connection', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='connectors.connection')),
                ('effect', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='steps', to='ledger.effect')),
                ('plan', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='steps', to='recovery.plan')),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='StepAttempt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveSmallIntegerField()),
                ('fence', models.BigIntegerField()),
                ('key', models.CharField(max_length=80)),
                ('intended_at', models.DateTimeField()),
                ('answered_at', models.DateTimeField(null=True)),
                ('outcome', models.CharField(blank=True, help_text='applied, no_effect, unknown', max_length=10)),
                ('detail', models.TextField(blank=True)),
                ('evidence', models.JSONField(null=True)),
                ('step', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='attempts', to='recovery.step')),
            ],
        ),
        migrations.CreateModel(
            name='BulkItem',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('revision', models.BigIntegerField()),
                ('digest', models.CharField(blank=True, help_text='Of the plan that was previewed', max_length=64)),
                ('state', models.CharField(default='waiting', max_length=12)),
                ('detail', models.CharField(blank=True, max_length=400)),
                ('taken_at', models.DateTimeField(help_text='When somebody began to work on it', null=True)),
                ('plan_id', models.BigIntegerField(null=True)),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='items', to='recovery.bulkjob')),
                ('case', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='recovery.case')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('state__in', ['waiting', 'working'])), fields=['id'], name='bulk_item_to_do')],
                'constraints': [models.UniqueConstraint(fields=('job', 'case'), name='case_once_in_job')],
            },
        ),
        migrations.AddIndex(
            model_name='cause',
            index=models.Index(fields=['workspace', '-last_seen_at', '-id'], name='cause_seen_last'),
        ),
        migrations.AddConstraint(
            model_name='cause',
            constraint=models.UniqueConstraint(fields=('workspace', 'fingerprint'), name='cause_once'),
        ),
        migrations.AddIndex(
            model_name='case',
            index=models.Index(condition=models.Q(('considered_revision__lt', models.F('revision')), ('state', 'open'), ('suggestion', 'compensate')), fields=['id'], name='case_to_be_considered'),
        ),
        migrations.AddIndex(
            model_name='case',
            index=models.Index(condition=models.Q(models.Q(('state', 'closed'), _negated=True), ('without_effects', False)), fields=['workspace', '-risk_rank', '-failed_at', '-id'], name='case_open_by_risk'),
        ),
        migrations.AddIndex(
            model_name='case',
            index=models.Index(condition=models.Q(models.Q(('state', 'closed'), _negated=True), ('without_effects', False)), fields=['workspace', '-failed_at', '-id'], name='case_open_newest'),
        ),
        migrations.AddIndex(
            model_name='case',
            index=models.Index(condition=models.Q(models.Q(('state', 'closed'), _negated=True), ('without_effects', False)), fields=['workspace', 'due_at', 'id'], name='case_open_by_due'),
        ),
        migrations.AddIndex(
            model_name='case',
            index=models.Index(condition=models.Q(models.Q(('state', 'closed'), _negated=True), ('without_effects', True)), fields=['workspace', '-risk_rank', '-failed_at', '-id'], name='case_open_without_effects'),
        ),
        migrations.AddIndex(
            model_name='case',
            index=models.Index(fields=['workspace', '-failed_at', '-id'], name='case_newest'),
        ),
        migrations.AddIndex(
            model_name='case',
            index=models.Index(condition=models.Q(('state', 'closed')), fields=['workspace', '-risk_rank', '-failed_at', '-id'], name='case_closed_by_risk'),
        ),
        migrations.AddIndex(
            model_name='case',
            index=models.Index(condition=models.Q(models.Q(('state', 'closed'), _negated=True), ('unknown_count__gt', 0), ('without_effects', False)), fields=['workspace', '-risk_rank', '-failed_at', '-id'], name='case_of_unknown_outcome'),
        ),
        migrations.AddIndex(
            model_name='case',
            index=models.Index(condition=models.Q(models.Q(('state', 'closed'), _negated=True), ('reversibility', 'irreversible'), ('without_effects', False)), fields=['workspace', '-risk_rank', '-failed_at', '-id'], name='case_irreversible'),
        ),
        migrations.AddIndex(
            model_name='case',
            index=models.Index(fields=['workspace', 'customer'], name='case_by_customer'),
        ),
        migrations.AddIndex(
            model_name='case',
            index=models.Index(fields=['workspace', 'opened_at'], name='case_by_opening'),
        ),
        migrations.AddIndex(
            model_name='case',
            index=models.Index(condition=models.Q(('closed_at__isnull', False)), fields=['workspace', 'closed_at'], name='case_by_closing'),
        ),
        migrations.AddIndex(
            model_name='case',
            index=models.Index(condition=models.Q(('state', 'closed'), _negated=True), fields=['cause'], name='case_open_of_cause'),
        ),
        migrations.AddIndex(
            model_name='case',
            index=models.Index(fields=['cause', '-opened_at'], name='case_newest_of_cause'),
        ),
        migrations.AddIndex(
            model_name='case',
            index=django.contrib.postgres.indexes.GinIndex(fields=['search'], name='case_words'),
        ),
        migrations.AddIndex(
            model_name='case',
            index=django.contrib.postgres.indexes.GinIndex(fields=['failed_target', 'failed_tool', 'customer', 'customer_name'], name='case_short_fields', opclasses=['gin_trgm_ops', 'gin_trgm_ops', 'gin_trgm_ops', 'gin_trgm_ops']),
        ),
        migrations.AddIndex(
            model_name='case',
            index=models.Index(condition=models.Q(('state', 'open'), ('suggestion', 'settle')), fields=['probe_at', 'id'], name='case_to_be_asked_for'),
        ),
        migrations.AddIndex(
            model_name='case',
            index=models.Index(condition=models.Q(('corrections_drafted_at', None), ('state', 'closed')), fields=['closed_at'], name='case_to_be_told_of'),
        ),
        migrations.AddConstraint(
            model_name='case',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'open'), ('was', '')), models.Q(('state', 'open'), ('was', 'closed')), models.Q(('state', 'closed'), ('was', 'open')), models.Q(('state', 'recovering'), ('was', 'open')), models.Q(('state', 'resuming'), ('was', 'open')), models.Q(('state', 'waiting'), ('was', 'open')), models.Q(('state', 'closed'), ('was', 'recovering')), models.Q(('state', 'open'), ('was', 'recovering')), models.Q(('state', 'closed'), ('was', 'resuming')), models.Q(('state', 'open'), ('was', 'resuming')), models.Q(('state', 'recovering'), ('was', 'resuming')), models.Q(('state', 'waiting'), ('was', 'resuming')), models.Q(('state', 'open'), ('was', 'waiting')), models.Q(('state', 'recovering'), ('was', 'waiting')), _connector='OR'), name='case_moves'),
        ),
        migrations.AddIndex(
            model_name='correction',
            index=models.Index(fields=['workspace', '-id'], name='correction_newest_first'),
        ),
        migrations.AddIndex(
            model_name='correction',
            index=models.Index(condition=models.Q(('still_wrong_at__isnull', False)), fields=['workspace', '-id'], name='correction_still_wrong'),
        ),
        migrations.AddConstraint(
            model_name='correction',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'draft')), fields=('case', 'person_id'), name='one_draft_per_person'),
        ),
        migrations.AddIndex(
            model_name='correctiondelivery',
            index=models.Index(condition=models.Q(('state', 'waiting')), fields=['id'], name='correction_on_its_way'),
        ),
        migrations.AddConstraint(
            model_name='directive',
            constraint=models.UniqueConstraint(condition=models.Q(('acknowledged_at__isnull', True), ('withdrawn_at__isnull', True)), fields=('run',), name='one_standing_directive'),
        ),
        migrations.AddIndex(
            model_name='plan',
            index=models.Index(condition=models.Q(('state__in', ['waiting', 'starting', 'running'])), fields=['id'], name='plan_living'),
        ),
        migrations.AddIndex(
            model_name='plan',
            index=models.Index(condition=models.Q(('started_at__isnull', False)), fields=['workspace', '-started_at', '-id'], name='plan_started_last'),
        ),
        migrations.AddConstraint(
            model_name='plan',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'draft'), ('was', '')), models.Q(('state', 'waiting'), ('was', '')), models.Q(('state', 'waiting'), ('was', 'draft')), models.Q(('state', 'finished'), ('was', 'running')), models.Q(('state', 'stopped'), ('was', 'running')), models.Q(('state', 'superseded'), ('was', 'running')), models.Q(('state', 'running'), ('was', 'starting')), models.Q(('state', 'stopped'), ('was', 'starting')), models.Q(('state', 'superseded'), ('was', 'starting')), models.Q(('state', 'superseded'), ('was', 'stopped')), models.Q(('state', 'rejected'), ('was', 'waiting')), models.Q(('state', 'running'), ('was', 'waiting')), models.Q(('state', 'starting'), ('was', 'waiting')), models.Q(('state', 'stopped'), ('was', 'waiting')), models.Q(('state', 'superseded'), ('was', 'waiting')), _connector='OR'), name='plan_moves'),
        ),
        migrations.AddConstraint(
            model_name='plan',
            constraint=models.UniqueConstraint(fields=('case', 'number'), name='plan_number_in_case'),
        ),
        migrations.AddConstraint(
            model_name='plan',
            constraint=models.UniqueConstraint(condition=models.Q(('state__in', ['waiting', 'starting', 'running'])), fields=('case',), name='one_living_plan_of_a_case'),
        ),
        migrations.AddIndex(
            model_name='readback',
            index=models.Index(condition=models.Q(('state', 'waiting')), fields=['due_at'], name='readback_due'),
        ),
        migrations.AddIndex(
            model_name='residue',
            index=models.Index(condition=models.Q(('done_at', None)), fields=['due_at', 'id'], name='residue_open_by_due'),
        ),
        migrations.AddConstraint(
            model_name='savedview',
            constraint=models.UniqueConstraint(fields=('workspace', 'slug'), name='view_slug_in_workspace'),
        ),
        migrations.AddIndex(
            model_name='step',
            index=models.Index(condition=models.Q(('state__in', ['verified', 'reported', 'skipped', 'cancelled']), _negated=True), fields=['state', 'wake_at', 'id'], name='step_living'),
        ),
        migrations.AddIndex(
            model_name='step',
            index=models.Index(condition=models.Q(('state__in', ['claimed', 'intended'])), fields=['connection'], name='step_in_hand'),
        ),
        migrations.AddConstraint(
            model_name='step',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state__in', ['blocked', 'ready']), ('was', '')), models.Q(('state__in', ['cancelled', 'ready', 'skipped']), ('was', 'blocked')), models.Q(('state__in', ['cancelled', 'claimed', 'skipped']), ('was', 'ready')), models.Q(('state__in', ['cancelled', 'drifted', 'intended', 'needs_human', 'ready', 'verified']), ('was', 'claimed')), models.Q(('state__in', ['applied', 'needs_human', 'ready', 'unknown']), ('was', 'intended')), models.Q(('state__in', ['applied', 'needs_human', 'ready']), ('was', 'unknown')), models.Q(('state__in', ['needs_human', 'reported', 'verified']), ('was', 'applied')), models.Q(('state__in', ['cancelled', 'skipped']), ('was', 'drifted')), models.Q(('state__in', ['applied', 'cancelled', 'ready', 'skipped']), ('was', 'needs_human')), _connector='OR'), name='step_moves'),
        ),
        migrations.AddConstraint(
            model_name='step',
            constraint=models.UniqueConstraint(fields=('plan', 'position'), name='step_position_in_plan'),
        ),
        migrations.AddConstraint(
            model_name='step',
            constraint=models.UniqueConstraint(condition=models.Q(('state__in', ['claimed', 'intended'])), fields=('plan',), name='one_active_step_of_a_plan'),
        ),
        migrations.AddConstraint(
            model_name='step',
            constraint=models.UniqueConstraint(condition=models.Q(('state__in', ['claimed', 'intended', 'unknown', 'applied']), models.Q(('state', 'needs_human'), ('was', 'unknown')), _connector='OR'), fields=('workspace', 'target_type', 'target_id'), name='one_active_step_of_a_target'),
        ),
        migrations.AddConstraint(
            model_name='step',
            constraint=models.UniqueConstraint(condition=models.Q(('state__in', ['verified', 'reported', 'skipped', 'cancelled']), _negated=True), fields=('effect',), name='one_living_step_of_an_effect'),
        ),
        migrations.AddIndex(
            model_name='stepattempt',
            index=models.Index(fields=['key'], name='attempt_by_key'),
        ),
        migrations.AddConstraint(
            model_name='stepattempt',
            constraint=models.UniqueConstraint(fields=('step', 'number'), name='attempt_number_in_step'),
        ),
        migrations.RunSQL(KEEP),
    ]
