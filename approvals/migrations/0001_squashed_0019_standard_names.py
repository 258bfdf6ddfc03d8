"""Approvals and the gate: the tables, and what the database itself holds people and agents to.

Four eyes: requester and owner are copied onto a decision by trigger, so that its check constraints
do not depend on what the code wrote; who decides has a proven address, and nobody who asked brought
them in a short while ago. Both are looked up when the decision is written, and kept.

And the gate's part of the usual begin in one statement: the key is met if all is as it was seen.
"""

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

COPY = """
CREATE FUNCTION decision_copies_requester() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    here bigint;
BEGIN
    SELECT workspace_id, requested_by_id, agent_owner_id, self_approval
      INTO here, NEW.requester_id, NEW.owner_id, NEW.self_approval
      FROM approvals_approval WHERE id = NEW.approval_id;
    IF TG_OP = 'UPDATE' AND (NEW.approval_id, NEW.person_id, NEW.granted)
            = (OLD.approval_id, OLD.person_id, OLD.granted) THEN
        NEW.is_proven := OLD.is_proven;
        NEW.is_independent := OLD.is_independent;
    ELSE
        NEW.is_proven := workspaces_address_is_proven(NEW.person_id);
        NEW.is_independent := workspaces_is_independent(
            NEW.person_id, ARRAY[NEW.requester_id, NEW.owner_id], here);
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER decision_four_eyes BEFORE INSERT OR UPDATE ON approvals_decision
    FOR EACH ROW EXECUTE FUNCTION decision_copies_requester();
"""

# The gate takes back a key that it met in this very transaction; old ones are let go by age. Any
# other guards against a second effect, and whoever could remove it could have it made twice.
GUARD = """
CREATE FUNCTION gate_key_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.met_at >= transaction_timestamp()
        OR OLD.met_at < transaction_timestamp() - interval '399 days' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'a key at the gate is let go by age alone' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER gate_key_stays BEFORE DELETE ON approvals_gatekey
    FOR EACH ROW EXECUTE FUNCTION gate_key_stays();
"""

BEGIN = """
CREATE FUNCTION gate_begin(
    policy text, paused_elsewhere bigint[], asked_as text,
    here bigint, of_agent bigint, said_by text, by_key text, is_trusted boolean,
    of_run text, of_action text, at_n integer, at_time timestamptz, traced jsonb,
    planned_id text, planned_data jsonb, planned_content bytea, planned_salt bytea,
    planned_digest bytea, started_id text, started_data jsonb, started_content bytea,
    started_salt bytea, started_digest bytea,
    with_tool text, in_class text, at_risk text, in_saga text, for_op text, under_key text,
    with_targets jsonb, with_args jsonb, with_digest text, with_intent jsonb,
    with_compensation jsonb, with_before jsonb, try text, tried_by text,
    labels_seen jsonb, may_follow_pivot boolean, stuck_after interval
) RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    until timestamptz := clock_timestamp() + stuck_after;
BEGIN
    INSERT INTO approvals_gatekey (agent_id, key, attempt, lease_until, denied, met_at)
    SELECT of_agent, under_key, try, until, '', clock_timestamp()
    WHERE policy IS NOT DISTINCT FROM (
            SELECT v.digest FROM approvals_policyversion v WHERE v.workspace_id = here AND v.active)
        AND NOT EXISTS (SELECT FROM approvals_pause p WHERE p.workspace_id = here
            AND p.lifted_at IS NULL AND p.id <> ALL (paused_elsewhere))
        AND NOT EXISTS (SELECT FROM approvals_approval a
            WHERE a.workspace_id = here AND a.subject_key = asked_as)
    ON CONFLICT (agent_id, key) DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF ledger_begin(
        here, of_agent, said_by, by_key, is_trusted, of_run, of_action, at_n, at_time, traced,
        planned_id, planned_data, planned_content, planned_salt, planned_digest, started_id,
        started_data, started_content, started_salt, started_digest, with_tool, in_class, at_risk,
        in_saga, for_op, under_key, with_targets, with_args, with_digest, with_intent,
        with_compensation, with_before, try, tried_by, labels_seen, may_follow_pivot, stuck_after
    ) THEN
        RETURN until;
    END IF;
    DELETE FROM approvals_gatekey k WHERE k.agent_id = of_agent AND k.key = under_key;
    RETURN NULL;
END $$;
"""


class Migration(migrations.Migration):

    replaces = [('approvals', '0001_initial'), ('approvals', '0002_four_eyes'), ('approvals', '0003_tell_the_subject'), ('approvals', '0004_meet_keys_at_the_gate'), ('approvals', '0005_who_was_told'), ('approvals', '0006_asking_back'), ('approvals', '0007_affected_people'), ('approvals', '0008_targets_of_approvals'), ('approvals', '0009_shadow_and_unmet'), ('approvals', '0010_begin_at_once'), ('approvals', '0011_begin_in_few_statements'), ('approvals', '0012_when_it_was_decided'), ('approvals', '0013_denials'), ('approvals', '0014_pauses_of_runs'), ('approvals', '0015_approvals_of_a_run'), ('approvals', '0016_independent_deciders'), ('approvals', '0017_asked_once_per_run'), ('approvals', '0018_pauses_of_the_desk'), ('approvals', '0019_standard_names')]

    initial = True

    dependencies = [
        ('connectors', '0001_squashed_0005_leaner_calls'),
        ('ledger', '0001_squashed_0019_record_repaired'),
        ('workspaces', '0001_squashed_0005_masking_keys'),
    ]

    operations = [
        migrations.CreateModel(
            name='Approval',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('subject_kind', models.CharField(choices=[('action', 'Action'), ('plan', 'Plan')], max_length=6)),
                ('plan_id', models.BigIntegerField(help_text='Plain id of a plan, which lives upstairs', null=True)),
                ('subject_key', models.CharField(help_text='Action: agent and key; asked once per key and run', max_length=400)),
                ('run_ref', models.CharField(blank=True, help_text='Run id of the subject', max_length=120)),
                ('case_ref', models.CharField(blank=True, help_text="Number of the plan's case", max_length=60)),
                ('subject', models.JSONField(default=dict, help_text='The subject as the digest holds it')),
                ('digest', models.CharField(max_length=64)),
                ('calls', models.JSONField(help_text="What would run, call by call, with each call's digest")),
                ('targets', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=400), default=list, help_text='What its calls are about, as “type id”, to find what was decided before', size=None)),
                ('rules', models.JSONField(help_text='The matched rules, in words and as written')),
                ('headline', models.CharField(max_length=300)),
                ('previews', models.JSONField(default=list, help_text='One preview per call, as shown')),
                ('agent_text', models.JSONField(help_text='What the agent wrote: goal, reason, confidence', null=True)),
                ('risk', models.CharField(choices=[('low', 'Low'), ('medium', 'Medium'), ('high', 'High'), ('critical', 'Critical')], max_length=8)),
                ('amount_minor', models.BigIntegerField(null=True)),
                ('currency', models.CharField(blank=True, max_length=3)),
                ('reason', models.TextField(blank=True)),
                ('self_approval', models.BooleanField(default=False)),
                ('fresh_login', models.BooleanField(default=False, help_text='Critical: log-in under 5 minutes old')),
                ('affected', models.CharField(blank=True, choices=[('ask', 'as evidence'), ('must', 'before anybody grants')], help_text='Whether the affected person is asked first', max_length=4)),
                ('was', models.CharField(blank=True, default='', max_length=9)),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('granted', 'Granted'), ('used', 'Used'), ('rejected', 'Rejected'), ('expired', 'Expired'), ('withdrawn', 'Withdrawn')], default='waiting', max_length=9)),
                ('asked_at', models.DateTimeField()),
                ('remind_at', models.DateTimeField(null=True)),
                ('reminded_at', models.DateTimeField(null=True)),
                ('expires_at', models.DateTimeField()),
                ('decided_at', models.DateTimeField(null=True)),
                ('used_at', models.DateTimeField(null=True)),
                ('closing_reason', models.TextField(blank=True, help_text='Why rejected or withdrawn')),
                ('action', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='approvals', to='ledger.action')),
                ('agent', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, to='workspaces.agent')),
                ('agent_owner', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('closed_by', models.ForeignKey(help_text='Who rejected or withdrew it; NULL with withdrawn: the desk, to ask anew', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('requested_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='Clarification',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('question', models.TextField()),
                ('asked_at', models.DateTimeField(auto_now_add=True)),
                ('answer', models.TextField(blank=True)),
                ('answered_at', models.DateTimeField(null=True)),
                ('answered_by', models.ForeignKey(help_text='NULL: the agent', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='enquiries', to='approvals.approval')),
                ('asked_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'db_table': 'approvals_enquiry',
            },
        ),
        migrations.CreateModel(
            name='ConsentRequest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('person_ref', models.CharField(help_text='Their id, as the agent named them', max_length=120)),
                ('name', models.CharField(blank=True, max_length=200)),
                ('contact', models.CharField(blank=True, max_length=320)),
                ('question', models.TextField()),
                ('token_digest', models.CharField(max_length=64, unique=True)),
                ('token_sealed', models.BinaryField()),
                ('asked_at', models.DateTimeField(auto_now_add=True)),
                ('answer', models.CharField(blank=True, choices=[('', 'has not answered'), ('yes', 'wants it'), ('no', 'does not want it')], default='', max_length=3)),
                ('note', models.TextField(blank=True, help_text='In their own words')),
                ('answered_at', models.DateTimeField(null=True)),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='wishes', to='approvals.approval')),
            ],
            options={
                'db_table': 'approvals_wish',
            },
        ),
        migrations.CreateModel(
            name='Denial',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=200)),
                ('run_ref', models.CharField(help_text='Run id of the call', max_length=120)),
                ('deed', models.JSONField(default=dict, help_text='What was judged, masked as in the ledger')),
                ('times', models.PositiveIntegerField(db_default=1, default=1, help_text='How often it came')),
                ('denied_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('agent', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='workspaces.agent')),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='GateKey',
            fields=[
                ('pk', models.CompositePrimaryKey('agent_id', 'key', blank=True, editable=False, primary_key=True, serialize=False)),
                ('key', models.CharField(max_length=200)),
                ('attempt', models.CharField(blank=True, help_text='Whose lease it is', max_length=120)),
                ('lease_until', models.DateTimeField(null=True)),
                ('denied', models.CharField(blank=True, help_text='What it was last denied for', max_length=20)),
                ('met_at', models.DateTimeField(help_text='When it last came to the gate')),
                ('agent', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.agent')),
            ],
        ),
        migrations.CreateModel(
            name='NotificationRecord',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('about', models.CharField(choices=[('requested', 'that it waits'), ('reminded', 'that half of the time is over'), ('questioned', 'that a decider has a question'), ('answered', 'that a question is answered'), ('affected', 'what they want, as the affected person'), ('heard', 'what the affected person wants'), ('ended', 'how it ended')], max_length=10)),
                ('to', models.CharField(help_text="The channel's name, or the person's address", max_length=320)),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('noted_at', models.DateTimeField(help_text='When the ledger was told what became', null=True)),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='told', to='approvals.approval')),
                ('delivery', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='connectors.delivery')),
                ('person', models.ForeignKey(help_text='NULL: a channel, or the affected person', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'db_table': 'approvals_told',
            },
        ),
        migrations.CreateModel(
            name='Pause',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('workspace', 'Workspace'), ('agent', 'Agent'), ('tool', 'Tool'), ('connection', 'Connection'), ('run', 'Run')], max_length=10)),
                ('name', models.CharField(blank=True, help_text='Agent, tool glob, connection or run', max_length=200)),
                ('reason', models.CharField(max_length=400)),
                ('paused_at', models.DateTimeField(auto_now_add=True)),
                ('lifted_at', models.DateTimeField(null=True)),
                ('lifted_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('paused_by', models.ForeignKey(help_text='NULL: the desk itself, until an administrator has looked', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pauses', to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='PolicyVersion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField()),
                ('document', models.JSONField()),
                ('source', models.TextField(blank=True, help_text='As it was written, JSON or YAML')),
                ('digest', models.CharField(max_length=64)),
                ('note', models.CharField(blank=True, max_length=400)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('activated_at', models.DateTimeField(null=True)),
                ('active', models.BooleanField(default=False)),
                ('shadow_since', models.DateTimeField(help_text='Since when it is judged beside the active one, without a say', null=True)),
                ('unmet', models.JSONField(default=list, help_text='What it asks and nobody can meet, as last looked at')),
                ('looked_at', models.DateTimeField(help_text='When `unmet` was last looked at', null=True)),
                ('author', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, to=settings.AUTH_USER_MODEL)),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='policies', to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='Requirement',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('count', models.PositiveSmallIntegerField(default=1)),
                ('position', models.PositiveSmallIntegerField(default=0)),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='requirements', to='approvals.approval')),
                ('team', models.ForeignKey(help_text='NULL: anybody with approve', null=True, on_delete=django.db.models.deletion.PROTECT, to='workspaces.team')),
            ],
        ),
        migrations.CreateModel(
            name='Decision',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('granted', models.BooleanField()),
                ('reason', models.TextField(blank=True)),
                ('seen_digest', models.CharField(max_length=64)),
                ('shown', models.JSONField(help_text='What was shown', null=True)),
                ('shown_seconds', models.FloatField(null=True)),
                ('fresh_login_at', models.DateTimeField(null=True)),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('requester_id', models.BigIntegerField(editable=False, null=True)),
                ('owner_id', models.BigIntegerField(editable=False, null=True)),
                ('self_approval', models.BooleanField(default=False, editable=False)),
                ('is_proven', models.BooleanField(editable=False, null=True)),
                ('is_independent', models.BooleanField(editable=False, null=True)),
                ('teams', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=80), default=list, help_text='As they stood then', size=None)),
                ('approval', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='decisions', to='approvals.approval')),
                ('person', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='decisions', to=settings.AUTH_USER_MODEL)),
                ('requirement', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, to='approvals.requirement')),
            ],
        ),
        migrations.AddIndex(
            model_name='approval',
            index=models.Index(condition=models.Q(('state', 'waiting')), fields=['workspace', 'expires_at', 'id'], name='approval_waiting'),
        ),
        migrations.AddIndex(
            model_name='approval',
            index=models.Index(fields=['workspace', '-id'], name='approval_newest_first'),
        ),
        migrations.AddIndex(
            model_name='approval',
            index=models.Index(condition=models.Q(('decided_at__isnull', False)), fields=['workspace', 'decided_at'], name='approval_by_decision'),
        ),
        migrations.AddIndex(
            model_name='approval',
            index=models.Index(fields=['action'], name='approval_of_action'),
        ),
        migrations.AddIndex(
            model_name='approval',
            index=models.Index(condition=models.Q(('run_ref', ''), _negated=True), fields=['workspace', 'run_ref'], name='approval_of_run'),
        ),
        migrations.AddIndex(
            model_name='approval',
            index=django.contrib.postgres.indexes.GinIndex(fields=['targets'], name='approval_targets'),
        ),
        migrations.AddIndex(
            model_name='approval',
            index=models.Index(fields=['workspace', 'subject_key', '-id'], name='approval_of_key'),
        ),
        migrations.AddIndex(
            model_name='approval',
            index=models.Index(condition=models.Q(('state__in', ['waiting', 'granted'])), fields=['expires_at'], name='approval_expiring'),
        ),
        migrations.AddConstraint(
            model_name='approval',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'waiting'), ('was', '')), models.Q(('state', 'expired'), ('was', 'granted')), models.Q(('state', 'used'), ('was', 'granted')), models.Q(('state', 'withdrawn'), ('was', 'granted')), models.Q(('state', 'expired'), ('was', 'waiting')), models.Q(('state', 'granted'), ('was', 'waiting')), models.Q(('state', 'rejected'), ('was', 'waiting')), models.Q(('state', 'withdrawn'), ('was', 'waiting')), _connector='OR'), name='approval_moves'),
        ),
        migrations.AddConstraint(
            model_name='approval',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('action__isnull', False), ('plan_id__isnull', True), ('subject_kind', 'action')), models.Q(('action__isnull', True), ('plan_id__isnull', False), ('subject_kind', 'plan')), _connector='OR'), name='approval_has_one_subject'),
        ),
        migrations.AddConstraint(
            model_name='approval',
            constraint=models.UniqueConstraint(condition=models.Q(('state__in', ['waiting', 'granted'])), fields=('workspace', 'plan_id'), name='one_living_approval_of_a_plan'),
        ),
        migrations.AddConstraint(
            model_name='approval',
            constraint=models.UniqueConstraint(condition=models.Q(('state__in', ['waiting', 'granted']), ('subject_kind', 'action')), fields=('workspace', 'subject_key', 'run_ref'), name='asked_once_per_key_and_run'),
        ),
        migrations.AddConstraint(
            model_name='clarification',
            constraint=models.CheckConstraint(condition=models.Q(('answered_at__isnull', False), models.Q(('answer', ''), ('answered_by__isnull', True)), _connector='OR'), name='enquiry_answered_at_a_time'),
        ),
        migrations.AddConstraint(
            model_name='consentrequest',
            constraint=models.UniqueConstraint(fields=('approval', 'person_ref'), name='asked_once_each'),
        ),
        migrations.AddConstraint(
            model_name='consentrequest',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('answer', ''), ('answered_at__isnull', True)), models.Q(('answer__in', ['yes', 'no']), ('answered_at__isnull', False)), _connector='OR'), name='wish_answered_at_a_time'),
        ),
        migrations.AddIndex(
            model_name='denial',
            index=models.Index(fields=['workspace', '-id'], name='denial_newest_first'),
        ),
        migrations.AddIndex(
            model_name='denial',
            index=models.Index(fields=['workspace', 'run_ref'], name='denial_of_run'),
        ),
        migrations.AddConstraint(
            model_name='denial',
            constraint=models.UniqueConstraint(fields=('agent', 'key', 'run_ref'), name='denied_once_per_key_and_run'),
        ),
        migrations.AddIndex(
            model_name='gatekey',
            index=models.Index(fields=['met_at'], name='gate_key_by_age'),
        ),
        migrations.AddIndex(
            model_name='notificationrecord',
            index=models.Index(condition=models.Q(('noted_at', None)), fields=['id'], name='told_not_noted'),
        ),
        migrations.AddConstraint(
            model_name='notificationrecord',
            constraint=models.UniqueConstraint(fields=('delivery',), name='told_once_by_a_message'),
        ),
        migrations.AddConstraint(
            model_name='notificationrecord',
            constraint=models.CheckConstraint(condition=models.Q(('about__in', ['requested', 'reminded', 'questioned', 'answered', 'affected', 'heard', 'ended'])), name='told_about'),
        ),
        migrations.AddConstraint(
            model_name='pause',
            constraint=models.UniqueConstraint(condition=models.Q(('lifted_at__isnull', True)), fields=('workspace', 'kind', 'name'), name='one_standing_pause'),
        ),
        migrations.AddIndex(
            model_name='policyversion',
            index=models.Index(condition=models.Q(('active', True)), fields=['looked_at'], name='policy_looked_at'),
        ),
        migrations.AddConstraint(
            model_name='policyversion',
            constraint=models.UniqueConstraint(fields=('workspace', 'number'), name='policy_number'),
        ),
        migrations.AddConstraint(
            model_name='policyversion',
            constraint=models.UniqueConstraint(condition=models.Q(('active', True)), fields=('workspace',), name='one_active_policy'),
        ),
        migrations.AddConstraint(
            model_name='policyversion',
            constraint=models.UniqueConstraint(condition=models.Q(('shadow_since__isnull', False)), fields=('workspace',), name='one_shadow_policy'),
        ),
        migrations.AddIndex(
            model_name='decision',
            index=models.Index(fields=['person', 'at'], name='decision_by_person'),
        ),
        migrations.AddConstraint(
            model_name='decision',
            constraint=models.UniqueConstraint(fields=('approval', 'person'), name='one_answer_each'),
        ),
        migrations.AddConstraint(
            model_name='decision',
            constraint=models.CheckConstraint(condition=models.Q(('self_approval', True), ('granted', False), models.Q(models.Q(('requester_id__isnull', True), models.Q(('person_id', models.F('requester_id')), _negated=True), _connector='OR'), models.Q(('owner_id__isnull', True), models.Q(('person_id', models.F('owner_id')), _negated=True), _connector='OR'), models.Q(('is_independent__isnull', True), ('is_independent', True), _connector='OR')), _connector='OR'), name='four_eyes'),
        ),
        migrations.AddConstraint(
            model_name='decision',
            constraint=models.CheckConstraint(condition=models.Q(('is_proven__isnull', True), ('is_proven', True), _connector='OR'), name='decided_from_a_proven_address'),
        ),
        migrations.RunSQL([COPY, GUARD, BEGIN]),
    ]
