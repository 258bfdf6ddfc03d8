"""Nobody makes a key at the gate older than it is, or another one, so as to have it let go.

A key is taken back by the transaction that brought it, and by no other: that one's row is not
committed. A row that was there before never looks as if it had come in this transaction.
"""

from django.db import migrations

KEPT = """
CREATE FUNCTION gate_key_keeps_its_age() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.agent_id, NEW.key) IS DISTINCT FROM (OLD.agent_id, OLD.key) THEN
        RAISE EXCEPTION 'a key at the gate stays what it is' USING ERRCODE = 'restrict_violation';
    END IF;
    NEW.met_at := greatest(OLD.met_at,
        least(NEW.met_at, transaction_timestamp() - interval '1 microsecond'));
    RETURN NEW;
END $$;
CREATE TRIGGER gate_key_keeps_its_age BEFORE UPDATE OF agent_id, key, met_at ON approvals_gatekey
    FOR EACH ROW EXECUTE FUNCTION gate_key_keeps_its_age();

CREATE OR REPLACE FUNCTION gate_key_stays() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    brought bigint;
    here bigint := pg_current_xact_id()::text::bigint;
BEGIN
    IF OLD.met_at < transaction_timestamp() - interval '399 days' THEN
        RETURN OLD;
    END IF;
    IF OLD.met_at >= transaction_timestamp() THEN
        SELECT xmin::text::bigint | (here >> 32 << 32) INTO brought
        FROM approvals_gatekey WHERE agent_id = OLD.agent_id AND key = OLD.key;
        IF pg_xact_status(brought::text::xid8) = 'in progress' THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION 'a key at the gate is let go by age alone' USING ERRCODE = 'restrict_violation';
END $$;
"""

AS_BEFORE = """
DROP TRIGGER gate_key_keeps_its_age ON approvals_gatekey;
DROP FUNCTION gate_key_keeps_its_age();
CREATE OR REPLACE FUNCTION gate_key_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.met_at >= transaction_timestamp()
        OR OLD.met_at < transaction_timestamp() - interval '399 days' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'a key at the gate is let go by age alone' USING ERRCODE = 'restrict_violation';
END $$;
"""


class Migration(migrations.Migration):

    dependencies = [("approvals", "0001_squashed_0019_standard_names")]

    operations = [migrations.RunSQL(KEPT, AS_BEFORE)]
