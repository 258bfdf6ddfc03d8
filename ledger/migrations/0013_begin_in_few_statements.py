"""The usual begin writes all its rows in one statement.

What each statement costs by itself (its plan looked up and checked, its executor started, its
tables and indexes opened) was as much as the rows. So there are three left: the run is locked, all
looks are one, all writes are one. And the rows come as plain values: to make a row of a table out
of JSON, PostgreSQL looks up the type of each column at every call.

The function of before stays beside it, for processes that were started before the migration.
"""

from django.db import migrations

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


class Migration(migrations.Migration):
    dependencies = [("ledger", "0012_begin_at_once")]

    operations = [
        migrations.RunSQL(BEGIN),
    ]
