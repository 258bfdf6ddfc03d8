"""The usual begin in one statement: what the gate looks at around the ledger's own function.

The caller has judged by the policy it knows and looked past the pauses it knows. Whether these are
still the ones in force is looked up here, under the lock of the key, which is that of a key never
met: any other has a story, which the general way reads.
"""

import django.db.models.deletion
from django.db import migrations, models

BEGIN = """
CREATE FUNCTION gate_begin(
    policy text, paused_elsewhere bigint[], asked_as text,
    agent bigint, planned ledger_event, started ledger_event, contents bytea[],
    act ledger_action, try ledger_attempt, labels_seen jsonb, may_follow_pivot boolean,
    stuck_after interval
) RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    here bigint := planned.workspace_id;
    until timestamptz := clock_timestamp() + stuck_after;
BEGIN
    INSERT INTO approvals_gatekey (agent_id, key, attempt, lease_until, denied, met_at)
    VALUES (agent, act.key, try.attempt, until, '', clock_timestamp())
    ON CONFLICT (agent_id, key) DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF policy IS NOT DISTINCT FROM (
            SELECT v.digest FROM approvals_policyversion v WHERE v.workspace_id = here AND v.active)
        AND NOT EXISTS (SELECT FROM approvals_pause p WHERE p.workspace_id = here
            AND p.lifted_at IS NULL AND p.id <> ALL (paused_elsewhere))
        AND NOT EXISTS (SELECT FROM approvals_approval a
            WHERE a.workspace_id = here AND a.subject_key = asked_as)
        AND ledger_begin(agent, planned, started, contents, act, try, labels_seen,
            may_follow_pivot, stuck_after) IS NOT NULL
    THEN
        RETURN until;
    END IF;
    DELETE FROM approvals_gatekey k WHERE k.agent_id = agent AND k.key = act.key;
    RETURN NULL;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0009_shadow_and_unmet"),
        ("ledger", "0012_begin_at_once"),
    ]

    operations = [
        migrations.AlterField(
            model_name="gatekey",
            name="agent",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                to="workspaces.agent",
            ),
        ),
        migrations.RunSQL(BEGIN, "DROP FUNCTION gate_begin"),
    ]
