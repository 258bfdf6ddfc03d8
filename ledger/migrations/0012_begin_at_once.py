"""The usual begin in one statement: an action of which nothing is known is planned and started.

`ledger.begun` has folded the rows already, for an action's first two events need no others. What is
left to the database is to look, under the run's lock, whether nothing is known indeed, to give the
places and the time, and to write. Where anything is not as usual it writes nothing and gives NULL,
and the general way (`ledger.record`) is taken, which leaves the same rows.
"""

from django.db import migrations

BEGIN = """
CREATE FUNCTION ledger_begin(
    agent bigint, planned ledger_event, started ledger_event, contents bytea[],
    act ledger_action, try ledger_attempt, labels_seen jsonb, may_follow_pivot boolean,
    stuck_after interval
) RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    met record;
    here bigint;
    this_moment timestamptz;
BEGIN
    IF EXISTS (SELECT FROM ledger_action a
        WHERE a.agent_id = agent AND a.key = act.key AND a.key <> '')
    THEN
        RETURN NULL;
    END IF;
    SELECT r.id, r.agent_id, r.state, r.held_by, r.labels, r.forgotten_at INTO met FROM ledger_run r
    WHERE r.workspace_id = planned.workspace_id AND r.run = planned.run FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        INSERT INTO ledger_run (workspace_id, run, agent_id, model, request, goal, customer,
            customer_name, labels, state, summary, failed_action, cancelled_by, reason,
            resumed_from, flags, revision, seen_revision, search_revision, held_by, action_count,
            effect_count)
        VALUES (planned.workspace_id, planned.run, agent, '', '', '', '', '', '{}', 'running', '',
            '', '', '', '', '{}', 0, 0, 0, '', 0, 0)
        ON CONFLICT (workspace_id, run) DO NOTHING RETURNING id INTO here;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    ELSIF met.agent_id IS DISTINCT FROM agent OR met.state <> 'running' OR met.held_by <> ''
        OR met.forgotten_at IS NOT NULL OR (labels_seen IS NOT NULL AND met.labels <> labels_seen)
        OR EXISTS (SELECT FROM ledger_action a WHERE a.run_id = met.id AND a.action = act.action)
        OR EXISTS (SELECT FROM ledger_action a WHERE a.run_id = met.id AND a.verified = 'failed')
        OR (NOT may_follow_pivot AND EXISTS (
            SELECT FROM ledger_action a WHERE a.run_id = met.id AND a.saga = 'pivot'))
    THEN
        RETURN NULL;
    ELSE
        here := met.id;
    END IF;

    this_moment := clock_timestamp();
    planned.place := nextval('ledger_place');
    started.place := nextval('ledger_place');
    planned.received_at := this_moment;
    started.received_at := this_moment;
    INSERT INTO ledger_eventkey (workspace_id, event_id, content, place, received_at) VALUES
        (planned.workspace_id, planned.event_id, contents[1], planned.place, this_moment),
        (planned.workspace_id, started.event_id, contents[2], started.place, this_moment);
    INSERT INTO ledger_event VALUES (planned.*), (started.*);
    INSERT INTO ledger_unsealed (place, workspace_id, received_at) VALUES
        (planned.place, planned.workspace_id, this_moment),
        (started.place, planned.workspace_id, this_moment);

    act.id := nextval('ledger_action_id_seq');
    act.workspace_id := planned.workspace_id;
    act.agent_id := agent;
    act.run_id := here;
    act.first_place := planned.place;
    act.last_place := started.place;
    act.planned_at := this_moment;
    act.started_at := this_moment;
    INSERT INTO ledger_action VALUES (act.*);
    try.id := nextval('ledger_attempt_id_seq');
    try.action_id := act.id;
    try.started_at := this_moment;
    INSERT INTO ledger_attempt VALUES (try.*);
    UPDATE ledger_run r SET revision = r.revision + 1,
        first_place = least(r.first_place, planned.place),
        last_place = greatest(r.last_place, started.place),
        started_at = least(r.started_at, this_moment),
        last_event_at = greatest(r.last_event_at, this_moment),
        lease_until = greatest(r.lease_until, this_moment + stuck_after),
        action_count = r.action_count + 1
    WHERE r.id = here;
    RETURN this_moment;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0011_pivots_and_failed_checks")]

    operations = [
        migrations.RunSQL(BEGIN, "DROP FUNCTION ledger_begin"),
    ]
