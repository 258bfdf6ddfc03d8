"""The gate's part of the usual begin in one statement: the key is met if all is as it was seen.

`ledger_begin` takes plain values now, and so does this. The function of before stays beside it, for
processes that were started before the migration.
"""

from django.db import migrations

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
    dependencies = [
        ("approvals", "0010_begin_at_once"),
        ("ledger", "0013_begin_in_few_statements"),
    ]

    operations = [
        migrations.RunSQL(BEGIN),
    ]
