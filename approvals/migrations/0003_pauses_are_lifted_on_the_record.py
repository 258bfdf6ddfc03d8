"""Nobody lifts a pause without the record telling whose word it was, in the same transaction.

The event names the pause by its id: names and reasons are masked like everything that is kept.
"""

from django.db import migrations

KEPT = """
CREATE FUNCTION pause_is_lifted_on_the_record() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.lifted_at IS NOT NULL THEN
        RAISE EXCEPTION 'a pause that was lifted stays so' USING ERRCODE = 'restrict_violation';
    END IF;
    IF EXISTS (
        SELECT FROM unnest(CASE WHEN OLD.paused_by_id IS NULL
            THEN ARRAY['pause.lifted', 'ledger.acknowledged'] ELSE ARRAY['pause.lifted'] END) wanted
        WHERE NOT EXISTS (
            SELECT FROM ledger_event e
            WHERE e.workspace_id = NEW.workspace_id AND e.received_at >= transaction_timestamp()
                AND e.type = wanted AND e.actor_kind = 'person'
                AND e.actor = NEW.lifted_by_id::text AND e.data -> 'pause' = to_jsonb(NEW.id)))
    THEN
        RAISE EXCEPTION 'a pause is lifted with its event on the record'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER pause_is_lifted_on_the_record
    AFTER UPDATE OF lifted_at, lifted_by_id ON approvals_pause
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION pause_is_lifted_on_the_record();
"""

AS_BEFORE = """
DROP TRIGGER pause_is_lifted_on_the_record ON approvals_pause;
DROP FUNCTION pause_is_lifted_on_the_record();
"""


class Migration(migrations.Migration):

    dependencies = [("approvals", "0002_gate_keys_keep_their_age")]

    operations = [migrations.RunSQL(KEPT, AS_BEFORE)]
