"""The event that tells of a change is of the change's own transaction: whoever keeps one open until
others have put something on the record changes nothing by it (workspaces 0010).

This binds the role as which the desk runs; whoever owns the tables may do anything.
"""

from django.db import migrations

TOLD = """
CREATE OR REPLACE FUNCTION approvals_is_told(
    here bigint, of_run text, of_action text, kind text, who text, what jsonb
) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM ledger_event e
        WHERE e.workspace_id = here AND e.run = of_run AND e.action = of_action
            AND e.received_at >= transaction_timestamp(){ours}
            AND e.type = kind AND (who IS NULL OR e.actor_kind = 'person' AND e.actor = who)
            AND e.data @> what)
$$;
"""

LIFTED = """
CREATE OR REPLACE FUNCTION pause_is_lifted_on_the_record() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.lifted_at IS NOT NULL THEN
        RAISE EXCEPTION 'a pause that was lifted stays so' USING ERRCODE = 'restrict_violation';
    END IF;
    IF EXISTS (
        SELECT FROM unnest(CASE WHEN OLD.paused_by_id IS NULL
            THEN ARRAY['pause.lifted', 'ledger.acknowledged'] ELSE ARRAY['pause.lifted'] END) wanted
        WHERE NOT EXISTS (
            SELECT FROM ledger_event e
            WHERE e.workspace_id = NEW.workspace_id AND e.received_at >= transaction_timestamp(){ours}
                AND e.type = wanted AND e.actor_kind = 'person'
                AND e.actor = NEW.lifted_by_id::text AND e.data -> 'pause' = to_jsonb(NEW.id)))
    THEN
        RAISE EXCEPTION 'a pause is lifted with its event on the record'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
"""

ENTRY = """
CREATE OR REPLACE FUNCTION entry_is_of_a_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF workspaces_owns(TG_RELID) THEN RETURN NULL; END IF;
    IF TG_OP = 'UPDATE' AND OLD.until IS NOT NULL OR NOT EXISTS (
        SELECT FROM approvals_listchange c
        WHERE c.list_id = NEW.list_id AND c.at >= transaction_timestamp(){ours}
            AND c.version = CASE WHEN TG_OP = 'UPDATE' THEN NEW.until ELSE NEW.since END) THEN
        RAISE EXCEPTION 'a value comes and goes with a version of its list'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
"""

OF_EVENT, OF_CHANGE = (f" AND workspaces_is_ours({one}.xmin)" for one in "ec")
KEPT = TOLD.format(ours=OF_EVENT) + LIFTED.format(ours=OF_EVENT) + ENTRY.format(ours=OF_CHANGE)
AS_BEFORE = (TOLD + LIFTED + ENTRY).format(ours="")


class Migration(migrations.Migration):

    dependencies = [
        ("approvals", "0023_steps_of_plans_are_counted"),
        ("workspaces", "0010_told_in_the_same_transaction"),
    ]

    operations = [migrations.RunSQL(KEPT, AS_BEFORE)]
