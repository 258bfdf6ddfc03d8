"""Whether the ledger tells of a yes, and of a right that was handed over, as functions: PostgreSQL
plans over every partition of the ledger, which took longer than the answer, and a function's plan
is kept by its session.
"""

from django.db import migrations

from amends.protocol.vocabulary import EventType

# Whoever hands a right over is told of in the transaction that writes the row, so a row without is
# nobody's.
HANDED_OVER = f"""
CREATE FUNCTION approvals_is_handed_over(asked bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
DECLARE lent record;
BEGIN
    SELECT d.id, d.workspace_id, d.delegator_id, d.created_at INTO lent
    FROM workspaces_delegation d WHERE d.id = asked;
    RETURN EXISTS (
        SELECT FROM ledger_event e
        WHERE e.workspace_id = lent.workspace_id AND e.run = '' AND e.action = ''
            AND e.received_at > lent.created_at - interval '1 day'
            AND e.type = '{EventType.DELEGATION_GIVEN}' AND e.actor_kind = 'person'
            AND e.actor = lent.delegator_id::text
            AND e.data -> 'delegation' = to_jsonb(lent.id));
END $$;
"""

# Of everybody whose yes stands, that they said it, of these very bytes and in the same right; of a
# deputy, that it was handed to them; of who broke the glass, that they did. An answer is an event
# in the transaction that writes it, so one without is nobody's.
RECORDED = f"""
CREATE FUNCTION approvals_is_recorded(asked bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    it record;
    yes record;
    is_told boolean := false;
BEGIN
    SELECT a.id, a.workspace_id, a.run_ref, coalesce(c.action, '') AS action, a.digest, a.asked_at
    INTO it
    FROM approvals_approval a LEFT JOIN ledger_action c ON c.id = a.action_id WHERE a.id = asked;
    FOR yes IN
        SELECT d.person_id, d.delegation_id, d.break_glass
        FROM approvals_decision d WHERE d.approval_id = it.id AND d.granted
    LOOP
        SELECT bool_or(e.type = '{EventType.APPROVAL_GRANTED}'
                AND e.data ->> 'digest' = it.digest
                AND coalesce((e.data ->> 'break_glass')::boolean, false) = yes.break_glass
                AND e.data ->> 'delegation' IS NOT DISTINCT FROM yes.delegation_id::text)
            AND (NOT yes.break_glass OR bool_or(e.type <> '{EventType.APPROVAL_GRANTED}'))
        INTO is_told
        FROM ledger_event e
        WHERE e.workspace_id = it.workspace_id AND e.run = it.run_ref AND e.action = it.action
            AND e.received_at > it.asked_at - interval '1 day'
            AND e.type IN ('{EventType.APPROVAL_GRANTED}', '{EventType.BREAK_GLASS_BEGUN}',
                '{EventType.BREAK_GLASS_OPENED}')
            AND e.actor_kind = 'person' AND e.actor = yes.person_id::text
            AND e.data ->> 'approval' = it.id::text;
        IF is_told IS NOT TRUE OR yes.delegation_id IS NOT NULL
            AND NOT approvals_is_handed_over(yes.delegation_id)
        THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN is_told;
END $$;
"""


class Migration(migrations.Migration):

    dependencies = [
        ("approvals", "0024_told_in_the_same_transaction"),
        ("ledger", "0003_labels_that_disagree"),
    ]

    operations = [
        migrations.RunSQL(
            HANDED_OVER + RECORDED,
            "DROP FUNCTION approvals_is_recorded(bigint);"
            " DROP FUNCTION approvals_is_handed_over(bigint)",
        )
    ]
