"""The ledger: the tables, the event table by hand, and what the database does by itself.

Django cannot declare a partitioned table, so it is written out: partitioned by receipt time,
and append-only by trigger. Weekly partitions are made ahead by `ledger.partitions`; the default one
catches what no partition covers, so that a missing one loses nothing, and `/readyz` tells of rows
in it.

Where PostgreSQL has no statistics of a workspace yet, two indexes that lead with it look equally
good, and the one that was made last is taken. It must be the one that finds a run's events by run
and action, not the one that lists the newest, and the one that finds a run by its name; tests hold
it to that.
"""

import datetime
import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.db.models.deletion
import django.db.models.lookups
import ledger.models.runs
from django.conf import settings
from django.db import migrations, models
from ledger import partitions

TABLE = """
CREATE SEQUENCE ledger_place AS bigint;
CREATE TABLE ledger_event (
    place bigint NOT NULL DEFAULT nextval('ledger_place'),
    received_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    workspace_id bigint NOT NULL,
    event_id varchar(64) NOT NULL,
    type varchar(40) NOT NULL,
    "time" timestamptz,
    run varchar(120) NOT NULL DEFAULT '',
    action varchar(120) NOT NULL DEFAULT '',
    n integer,
    trace jsonb,
    actor_kind varchar(8) NOT NULL,
    actor varchar(120) NOT NULL,
    key_prefix varchar(12) NOT NULL DEFAULT '',
    trusted boolean NOT NULL DEFAULT false,
    data jsonb,
    salt bytea,
    digest bytea NOT NULL,
    PRIMARY KEY (place, received_at)
) PARTITION BY RANGE (received_at);
CREATE INDEX ledger_event_newest ON ledger_event (workspace_id, place DESC);
CREATE INDEX ledger_event_not_by_agents ON ledger_event (workspace_id, place DESC)
    WHERE actor_kind <> 'agent';
CREATE INDEX ledger_event_of_run ON ledger_event (workspace_id, run, action, place);
CREATE TABLE ledger_event_default PARTITION OF ledger_event DEFAULT;
"""

# The owner's erase() sets this transaction-local setting; nothing else may change a row.
GUARDS = """
CREATE FUNCTION ledger_event_only_grows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND current_setting('amends.erasing', true) = 'yes'
       AND NEW.data IS NULL AND NEW.salt IS NULL
       AND (to_jsonb(NEW) - 'data' - 'salt') = (to_jsonb(OLD) - 'data' - 'salt') THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'the ledger only grows: % on % is refused', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER ledger_event_no_change BEFORE UPDATE OR DELETE ON ledger_event
    FOR EACH ROW EXECUTE FUNCTION ledger_event_only_grows();
CREATE TRIGGER ledger_event_no_truncate BEFORE TRUNCATE ON ledger_event
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_event_only_grows();
"""

# The usual begin writes all its rows in one statement.
#
# What each statement costs by itself (its plan looked up and checked, its executor started, its
# tables and indexes opened) was as much as the rows. So there are three left: the run is locked,
# all looks are one, all writes are one. And the rows come as plain values: to make a row of a table
# out of JSON, PostgreSQL looks up the type of each column at every call.
BEGIN = """
CREATE FUNCTION ledger_begin(
    here bigint, of_agent bigint, said_by text, by_key text, is_trusted boolean,
    of_run text, of_action text, at_n integer, at_time timestamptz, traced jsonb,
    planned_id text, planned_data jsonb, planned_content bytea, planned_salt bytea,
    planned_digest bytea, started_id text, started_data jsonb, started_content bytea,
    started_salt bytea, started_digest bytea,
    with_tool text, in_class text, at_risk text, in_saga text, for_op text, under_key text,
    with_targets jsonb, with_args jsonb, with_digest text, with_intent jsonb,
    with_compensation jsonb, with_before jsonb, try text, tried_by text,
    labels_seen jsonb, may_follow_pivot boolean, stuck_after interval
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    met record;
    run_row bigint;
    action_row bigint;
    planned_place bigint;
    started_place bigint;
    this_moment timestamptz;
BEGIN
    SELECT r.id, r.agent_id, r.state, r.held_by, r.labels, r.forgotten_at INTO met FROM ledger_run r
    WHERE r.workspace_id = here AND r.run = of_run FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        INSERT INTO ledger_run (workspace_id, run, agent_id, model, request, goal, customer,
            customer_name, labels, state, summary, failed_action, cancelled_by, reason,
            resumed_from, flags, revision, seen_revision, search_revision, held_by, action_count,
            effect_count)
        VALUES (here, of_run, of_agent, '', '', '', '', '', '{}', 'running', '', '', '', '', '',
            '{}', 0, 0, 0, '', 0, 0)
        ON CONFLICT (workspace_id, run) DO NOTHING RETURNING id INTO run_row;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
    ELSIF met.agent_id IS DISTINCT FROM of_agent OR met.state <> 'running' OR met.held_by <> ''
        OR met.forgotten_at IS NOT NULL OR (labels_seen IS NOT NULL AND met.labels <> labels_seen)
    THEN
        RETURN false;
    ELSE
        run_row := met.id;
    END IF;
    IF EXISTS (SELECT FROM ledger_action a
            WHERE a.agent_id = of_agent AND a.key = under_key AND a.key <> '')
        OR EXISTS (SELECT FROM ledger_action a WHERE a.run_id = run_row AND a.action = of_action)
        OR EXISTS (SELECT FROM ledger_action a WHERE a.run_id = run_row AND a.verified = 'failed')
        OR (NOT may_follow_pivot AND EXISTS (
            SELECT FROM ledger_action a WHERE a.run_id = run_row AND a.saga = 'pivot'))
    THEN
        DELETE FROM ledger_run r WHERE r.id = run_row AND met.id IS NULL;
        RETURN false;
    END IF;

    this_moment := clock_timestamp();
    planned_place := nextval('ledger_place');
    started_place := nextval('ledger_place');
    action_row := nextval('ledger_action_id_seq');
    WITH known AS (
        INSERT INTO ledger_eventkey (workspace_id, event_id, content, place, received_at) VALUES
            (here, planned_id, planned_content, planned_place, this_moment),
            (here, started_id, started_content, started_place, this_moment)
    ), told AS (
        INSERT INTO ledger_event (place, received_at, workspace_id, event_id, type, "time", run,
            action, n, trace, actor_kind, actor, key_prefix, trusted, data, salt, digest)
        VALUES
            (planned_place, this_moment, here, planned_id, 'action.planned', at_time, of_run,
             of_action, at_n, traced, 'agent', said_by, by_key, is_trusted, planned_data,
             planned_salt, planned_digest),
            (started_place, this_moment, here, started_id, 'action.started', NULL, of_run,
             of_action, at_n, NULL, 'agent', said_by, by_key, is_trusted, started_data,
             started_salt, started_digest)
    ), waiting AS (
        INSERT INTO ledger_unsealed (place, workspace_id, received_at) VALUES
            (planned_place, here, this_moment), (started_place, here, this_moment)
    ), act AS (
        INSERT INTO ledger_action (id, workspace_id, run_id, agent_id, action, n, first_place, tool,
            action_class, risk, saga, op, key, targets, args, args_digest, intent, compensation,
            before, state, compensated, verified, settled_by, flags, trusted, current_attempt,
            fence, planned_at, started_at, last_place)
        VALUES (action_row, here, run_row, of_agent, of_action, at_n, planned_place, with_tool,
            in_class, at_risk, in_saga, for_op, under_key, with_targets, with_args,
            with_digest, with_intent, with_compensation, with_before, 'running', 'none',
            'not_yet', '', '{}', is_trusted, try, 1, this_moment, this_moment, started_place)
    ), attempt AS (
        INSERT INTO ledger_attempt (action_id, attempt, state, fence, stale, retry, started_at)
        VALUES (action_row, try, 'running', 1, false, tried_by, this_moment)
    )
    UPDATE ledger_run r SET revision = r.revision + 1,
        first_place = least(r.first_place, planned_place),
        last_place = greatest(r.last_place, started_place),
        started_at = least(r.started_at, this_moment),
        last_event_at = greatest(r.last_event_at, this_moment),
        lease_until = greatest(r.lease_until, this_moment + stuck_after),
        action_count = r.action_count + 1
    WHERE r.id = run_row;
    RETURN true;
END $$;
"""

# Room on each page for the next version of its rows; what Django does not say of generated columns;
# and the index of a run's name made last.
RUNS = """
ALTER TABLE ledger_run SET (fillfactor = 80);
ALTER TABLE ledger_run ALTER is_unseen SET NOT NULL, ALTER is_unsearchable SET NOT NULL;
ALTER TABLE ledger_run DROP CONSTRAINT run_id_in_workspace,
    ADD CONSTRAINT run_id_in_workspace UNIQUE (workspace_id, run);
"""


def make_partitions(apps, schema_editor):
    """The first weeks' partitions, so that the first event finds its own; and the default's guard."""
    with schema_editor.connection.cursor() as cursor:
        partitions.guard(cursor, partitions.DEFAULT)
    try:
        partitions.make_ahead()
    except partitions.PartitionMissing as missing:
        print(f"  ({missing})")


class Migration(migrations.Migration):

    replaces = [('ledger', '0001_initial'), ('ledger', '0002_events'), ('ledger', '0003_effect_withdrawn'), ('ledger', '0004_first_partitions'), ('ledger', '0005_fewer_constraints'), ('ledger', '0006_run_words'), ('ledger', '0007_rare_things'), ('ledger', '0008_leaner_indexes'), ('ledger', '0009_forgetting'), ('ledger', '0010_runs_by_name_last'), ('ledger', '0011_pivots_and_failed_checks'), ('ledger', '0012_begin_at_once'), ('ledger', '0013_begin_in_few_statements'), ('ledger', '0014_fewer_checks'), ('ledger', '0015_erasures_in_parts'), ('ledger', '0016_effects_unconstrained'), ('ledger', '0017_runs_stay_in_place'), ('ledger', '0018_runs_that_were_imported'), ('ledger', '0019_record_repaired')]

    initial = True

    dependencies = [
        ('workspaces', '0001_squashed_0005_masking_keys'),
    ]

    operations = [
        migrations.CreateModel(
            name='Event',
            fields=[
                ('pk', models.CompositePrimaryKey('place', 'received_at', blank=True, editable=False, primary_key=True, serialize=False)),
                ('place', models.BigIntegerField(help_text='From the sequence ledger_place')),
                ('received_at', models.DateTimeField()),
                ('event_id', models.CharField(max_length=64)),
                ('type', models.CharField(max_length=40)),
                ('time', models.DateTimeField(null=True)),
                ('run', models.CharField(blank=True, max_length=120)),
                ('action', models.CharField(blank=True, max_length=120)),
                ('n', models.IntegerField(null=True)),
                ('trace', models.JSONField(null=True)),
                ('actor_kind', models.CharField(choices=[('agent', 'Agent'), ('person', 'Person'), ('desk', 'Desk')], max_length=8)),
                ('actor', models.CharField(help_text="Agent's name, person's id, or the part of the desk", max_length=120)),
                ('key_prefix', models.CharField(blank=True, max_length=12)),
                ('trusted', models.BooleanField(default=False, help_text='From a key marked as trusted runtime')),
                ('data', models.JSONField(help_text='The masked payload; NULL once erased', null=True)),
                ('salt', models.BinaryField(help_text='32 random bytes; NULL once erased', null=True)),
                ('digest', models.BinaryField(help_text='SHA-256 of salt and canonical JSON of the masked event')),
            ],
            options={
                'db_table': 'ledger_event',
                'managed': False,
            },
        ),
        migrations.CreateModel(
            name='Erasure',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('person_digest', models.BinaryField(max_length=32, null=True)),
                ('salt', models.BinaryField(max_length=32)),
                ('reason', models.TextField(blank=True)),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('state', models.CharField(choices=[('waiting', 'Going on'), ('done', 'Done'), ('refused', 'Stopped: somebody works on the rest')], default='done', max_length=8)),
                ('person', models.CharField(blank=True, help_text='Empty once it is over', max_length=120)),
                ('named', models.JSONField(default=list, help_text='Runs asked for by name that are left')),
                ('total', models.PositiveIntegerField(default=0, help_text='Runs that were meant at first')),
                ('detail', models.CharField(blank=True, help_text='The runs that stopped it', max_length=4000)),
                ('run_count', models.PositiveIntegerField(default=0)),
                ('event_count', models.PositiveIntegerField(default=0)),
                ('rows', models.JSONField(default=dict, help_text='How many rows of each table were replaced')),
                ('by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='erasures', to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='EventConflict',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('event_id', models.CharField(max_length=64)),
                ('content', models.BinaryField()),
                ('key_prefix', models.CharField(blank=True, max_length=12)),
                ('received_at', models.DateTimeField(auto_now_add=True)),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='LogKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('origin', models.CharField(max_length=200)),
                ('public_key', models.BinaryField(max_length=32)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('retired_at', models.DateTimeField(null=True)),
                ('secret', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='workspaces.secret')),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='Run',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('run', models.CharField(max_length=120)),
                ('model', models.CharField(blank=True, max_length=120)),
                ('request', models.TextField(blank=True, help_text="The user's words")),
                ('goal', models.TextField(blank=True)),
                ('customer', models.CharField(blank=True, help_text='on_behalf_of.id', max_length=120)),
                ('customer_name', models.CharField(blank=True, max_length=200)),
                ('on_behalf_of', models.JSONField(null=True)),
                ('labels', models.JSONField(default=dict)),
                ('trace', models.JSONField(null=True)),
                ('state', models.CharField(choices=[('running', 'Running'), ('completed', 'Completed'), ('failed', 'Failed'), ('cancelled', 'Cancelled')], default='running', max_length=12)),
                ('summary', models.TextField(blank=True)),
                ('error', models.JSONField(help_text='{type, message}', null=True)),
                ('failed_action', models.CharField(blank=True, max_length=120)),
                ('cancelled_by', models.CharField(blank=True, max_length=200)),
                ('reason', models.TextField(blank=True)),
                ('resumed_from', models.CharField(blank=True, max_length=200)),
                ('flags', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=40), default=list, size=None)),
                ('started_at', models.DateTimeField(help_text='Receipt of the first event', null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('last_event_at', models.DateTimeField(null=True)),
                ('first_place', models.BigIntegerField(null=True)),
                ('last_place', models.BigIntegerField(null=True)),
                ('lease_until', models.DateTimeField(help_text='Renewed by every event and begin', null=True)),
                ('lease_minute', models.GeneratedField(db_persist=True, expression=ledger.models.runs.DateBin(models.Value(datetime.timedelta(seconds=60)), models.F('lease_until'), models.Value(datetime.datetime(2000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))), help_text='The minute in which the lease ends', output_field=models.DateTimeField(null=True))),
                ('is_unseen', models.GeneratedField(db_persist=True, expression=django.db.models.lookups.LessThan(models.F('seen_revision'), models.F('revision')), output_field=models.BooleanField())),
                ('is_unsearchable', models.GeneratedField(db_persist=True, expression=django.db.models.lookups.LessThan(models.F('search_revision'), models.F('revision')), output_field=models.BooleanField())),
                ('revision', models.BigIntegerField(default=0)),
                ('seen_revision', models.BigIntegerField(default=0, help_text='What triage last looked at')),
                ('held_by', models.CharField(blank=True, help_text="Who stopped it: 'case 12'; begin is denied while set", max_length=60)),
                ('forgotten_at', models.DateTimeField(help_text='What was said in it is erased; late events are refused', null=True)),
                ('action_count', models.IntegerField(default=0)),
                ('effect_count', models.IntegerField(default=0)),
                ('search', django.contrib.postgres.search.SearchVectorField(help_text='Words, and workspace, state and agent as lexemes of their own', null=True)),
                ('search_revision', models.BigIntegerField(default=0, help_text='What `search` was made of')),
                ('agent', models.ForeignKey(help_text='NULL: the desk itself', null=True, on_delete=django.db.models.deletion.PROTECT, to='workspaces.agent')),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='Checkpoint',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('event_id', models.CharField(max_length=64)),
                ('name', models.CharField(max_length=200)),
                ('n', models.IntegerField(null=True)),
                ('place', models.BigIntegerField()),
                ('at', models.DateTimeField()),
                ('state', models.JSONField(null=True)),
                ('state_ref', models.CharField(blank=True, max_length=200)),
                ('completed', models.JSONField(default=list)),
                ('pending', models.JSONField(default=list)),
                ('recovery_mode', models.CharField(blank=True, max_length=60)),
                ('instructions', models.TextField(blank=True)),
                ('summary', models.TextField(blank=True)),
                ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='checkpoints', to='ledger.run')),
            ],
        ),
        migrations.CreateModel(
            name='Action',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('action', models.CharField(max_length=120)),
                ('n', models.IntegerField(null=True)),
                ('first_place', models.BigIntegerField(help_text='Breaks ties of n: the place of its first event')),
                ('tool', models.CharField(blank=True, max_length=200)),
                ('action_class', models.CharField(blank=True, choices=[('read_only', 'Read Only'), ('draft', 'Draft'), ('internal_update', 'Internal Update'), ('external_reversible', 'External Reversible'), ('external_irreversible', 'External Irreversible')], max_length=24)),
                ('risk', models.CharField(blank=True, choices=[('low', 'Low'), ('medium', 'Medium'), ('high', 'High'), ('critical', 'Critical')], max_length=8)),
                ('saga', models.CharField(blank=True, help_text='pivot, retriable or nothing', max_length=10)),
                ('op', models.CharField(blank=True, max_length=200)),
                ('key', models.CharField(blank=True, max_length=200)),
                ('targets', models.JSONField(default=list, help_text='[{type, id}]')),
                ('args', models.JSONField(null=True)),
                ('args_digest', models.CharField(blank=True, help_text='SHA-256 of tool, targets, args', max_length=64)),
                ('intent', models.JSONField(help_text='{goal, reason, confidence, model}', null=True)),
                ('compensation', models.JSONField(help_text="The agent's suggestion", null=True)),
                ('before', models.JSONField(help_text='Snapshots said by action.planned, per target', null=True)),
                ('result', models.JSONField(null=True)),
                ('error', models.JSONField(null=True)),
                ('state', models.CharField(choices=[('planned', 'Planned'), ('approved', 'Approved'), ('running', 'Running'), ('unknown', 'Unknown'), ('succeeded', 'Succeeded'), ('failed', 'Failed')], max_length=10)),
                ('compensated', models.CharField(choices=[('none', 'None'), ('partly', 'Partly'), ('repaired', 'Record repaired'), ('compensated', 'Compensated'), ('corrected', 'Corrected')], default='none', max_length=12)),
                ('verified', models.CharField(choices=[('not_yet', 'Not Yet'), ('ok', 'Ok'), ('failed', 'Failed')], default='not_yet', max_length=8)),
                ('checks', models.JSONField(help_text='[{name, expected, actual, ok}]', null=True)),
                ('settled_by', models.CharField(blank=True, max_length=120)),
                ('flags', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=40), default=list, size=None)),
                ('trusted', models.BooleanField(default=False)),
                ('current_attempt', models.CharField(blank=True, help_text='Of the last begin', max_length=120)),
                ('fence', models.BigIntegerField(default=0, help_text='Rises with every begin that proceeds')),
                ('planned_at', models.DateTimeField(null=True)),
                ('started_at', models.DateTimeField(null=True)),
                ('finished_at', models.DateTimeField(null=True)),
                ('last_place', models.BigIntegerField(null=True)),
                ('agent', models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='workspaces.agent')),
                ('workspace', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
                ('run', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='actions', to='ledger.run')),
            ],
        ),
        migrations.CreateModel(
            name='Thinning',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('partition', models.CharField(max_length=60)),
                ('let_go', models.BigIntegerField()),
                ('kept', models.BigIntegerField(help_text='Of runs that somebody still works with')),
                ('last_place', models.BigIntegerField(help_text='The last place that was let go')),
                ('at', models.DateTimeField(auto_now_add=True)),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='thinnings', to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='TreeHead',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('origin', models.CharField(max_length=200)),
                ('size', models.BigIntegerField()),
                ('root', models.BinaryField(max_length=32)),
                ('note', models.TextField()),
                ('signed_at', models.DateTimeField(auto_now_add=True)),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='TreeNode',
            fields=[
                ('pk', models.CompositePrimaryKey('workspace_id', 'level', 'index', blank=True, editable=False, primary_key=True, serialize=False)),
                ('level', models.PositiveSmallIntegerField()),
                ('index', models.BigIntegerField()),
                ('hash', models.BinaryField(max_length=32)),
                ('workspace', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='Unsealed',
            fields=[
                ('pk', models.CompositePrimaryKey('workspace_id', 'place', blank=True, editable=False, primary_key=True, serialize=False)),
                ('place', models.BigIntegerField()),
                ('received_at', models.DateTimeField()),
                ('workspace', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
        ),
        migrations.CreateModel(
            name='Attempt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('attempt', models.CharField(max_length=120)),
                ('state', models.CharField(choices=[('running', 'Running'), ('unknown', 'Unknown'), ('succeeded', 'Succeeded'), ('no_effect', 'No Effect'), ('contradiction', 'Contradiction')], max_length=13)),
                ('fence', models.BigIntegerField(null=True)),
                ('stale', models.BooleanField(default=False)),
                ('retry', models.CharField(blank=True, help_text='model, tool, workflow, human', max_length=10)),
                ('error', models.JSONField(null=True)),
                ('started_at', models.DateTimeField(null=True)),
                ('finished_at', models.DateTimeField(null=True)),
                ('action', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='attempts', to='ledger.action')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('action', 'attempt'), name='attempt_in_action')],
            },
        ),
        migrations.CreateModel(
            name='Blob',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('sha256', models.CharField(max_length=64)),
                ('content', models.BinaryField(null=True)),
                ('byte_count', models.PositiveIntegerField()),
                ('received_at', models.DateTimeField(auto_now_add=True)),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('workspace', 'sha256'), name='blob_once')],
            },
        ),
        migrations.CreateModel(
            name='Effect',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('position', models.PositiveSmallIntegerField(help_text='Within one action the last is undone first')),
                ('target_type', models.CharField(max_length=120)),
                ('target_id', models.CharField(max_length=400)),
                ('before', models.JSONField(null=True)),
                ('after', models.JSONField(null=True)),
                ('has_before', models.BooleanField(default=False, help_text='null may be said, or not said at all')),
                ('has_after', models.BooleanField(default=False)),
                ('source', models.CharField(choices=[('observed', 'Observed'), ('reported', 'Reported')], default='reported', max_length=8)),
                ('summary', models.CharField(blank=True, max_length=400)),
                ('reversibility', models.CharField(choices=[('exact', 'Exact'), ('compensable', 'Compensable'), ('irreversible', 'Irreversible'), ('unknown', 'Unknown')], default='unknown', max_length=12)),
                ('undo_until', models.DateTimeField(null=True)),
                ('affects', models.JSONField(help_text='{id, name, contact?}; default on_behalf_of', null=True)),
                ('compensated', models.CharField(choices=[('none', 'None'), ('partly', 'Partly'), ('repaired', 'Record repaired'), ('compensated', 'Compensated'), ('corrected', 'Corrected')], default='none', max_length=12)),
                ('withdrawn', models.BooleanField(default=False, help_text='Later events no longer tell of it; kept for those who point here')),
                ('action', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='effects', to='ledger.action')),
                ('workspace', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
            options={
                'indexes': [models.Index(fields=['workspace', 'target_type', 'target_id', '-id'], name='effect_by_target')],
                'constraints': [models.UniqueConstraint(fields=('action', 'position'), name='effect_in_action')],
            },
        ),
        migrations.CreateModel(
            name='EventKey',
            fields=[
                ('pk', models.CompositePrimaryKey('workspace_id', 'event_id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('event_id', models.CharField(max_length=64)),
                ('content', models.BinaryField(help_text='SHA-256 of the canonical masked event, without salt')),
                ('place', models.BigIntegerField()),
                ('received_at', models.DateTimeField()),
                ('workspace', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, to='workspaces.workspace')),
            ],
            options={
                'indexes': [django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['received_at'], name='event_key_by_age')],
            },
        ),
        migrations.CreateModel(
            name='Leaf',
            fields=[
                ('pk', models.CompositePrimaryKey('workspace_id', 'index', blank=True, editable=False, primary_key=True, serialize=False)),
                ('index', models.BigIntegerField()),
                ('place', models.BigIntegerField()),
                ('hash', models.BinaryField(max_length=32)),
                ('workspace', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('workspace', 'place'), name='leaf_once')],
            },
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(fields=['workspace', '-started_at', '-id'], name='run_newest_first'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('is_unseen', True)), fields=['id'], name='run_unseen'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('state', 'running')), fields=['lease_minute'], name='run_lease'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('flags__contains', ['reported'])), fields=['workspace', '-id'], name='run_reported'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('is_unsearchable', True)), fields=['id'], name='run_unsearchable'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=django.contrib.postgres.indexes.GinIndex(fields=['search'], name='run_words'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.UniqueConstraint(fields=('workspace', 'run'), name='run_id_in_workspace'),
        ),
        migrations.AddConstraint(
            model_name='checkpoint',
            constraint=models.UniqueConstraint(fields=('run', 'event_id'), name='checkpoint_once'),
        ),
        migrations.AddIndex(
            model_name='action',
            index=models.Index(fields=['run', 'n', 'first_place'], name='action_in_order'),
        ),
        migrations.AddIndex(
            model_name='action',
            index=models.Index(condition=models.Q(('key', ''), _negated=True), fields=['agent', 'key'], name='action_by_key'),
        ),
        migrations.AddIndex(
            model_name='action',
            index=models.Index(fields=['workspace', 'tool', '-id'], name='action_by_tool'),
        ),
        migrations.AddIndex(
            model_name='action',
            index=models.Index(condition=models.Q(('compensated', 'compensated')), fields=['workspace', 'tool', '-id'], name='action_undone_by_tool'),
        ),
        migrations.AddIndex(
            model_name='action',
            index=models.Index(condition=models.Q(('saga', 'pivot')), fields=['run'], name='action_pivot'),
        ),
        migrations.AddIndex(
            model_name='action',
            index=models.Index(condition=models.Q(('verified', 'failed')), fields=['run'], name='action_unproven'),
        ),
        migrations.AddConstraint(
            model_name='action',
            constraint=models.UniqueConstraint(fields=('run', 'action'), name='action_id_in_run'),
        ),
        migrations.AddIndex(
            model_name='thinning',
            index=models.Index(fields=['workspace', '-id'], name='thinning_newest'),
        ),
        migrations.AddConstraint(
            model_name='treehead',
            constraint=models.UniqueConstraint(fields=('workspace', 'origin', 'size'), name='head_once'),
        ),
        migrations.RunSQL([TABLE, GUARDS, BEGIN, RUNS]),
        migrations.RunPython(make_partitions, migrations.RunPython.noop),
    ]
