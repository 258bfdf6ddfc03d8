"""What decides stands on the record: which policy is in force, which values stand on its lists, how a
broken glass was reviewed, what was drawn under a grant, and which keys were taken away.

All of this binds the role as which the desk runs; whoever owns the tables may do anything.
"""

from django.db import migrations

TOLD = """
CREATE FUNCTION approvals_is_told(
    here bigint, of_run text, of_action text, kind text, who text, what jsonb
) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM ledger_event e
        WHERE e.workspace_id = here AND e.run = of_run AND e.action = of_action
            AND e.received_at >= transaction_timestamp()
            AND e.type = kind AND (who IS NULL OR e.actor_kind = 'person' AND e.actor = who)
            AND e.data @> what)
$$;
"""

POLICY = """
CREATE FUNCTION policy_is_in_force_on_the_record() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    named jsonb := jsonb_build_object('number', NEW.number, 'digest', NEW.digest);
BEGIN
    IF workspaces_owns(TG_RELID) OR NEW.active = (TG_OP = 'UPDATE' AND OLD.active) THEN
        RETURN NULL;
    END IF;
    IF NOT approvals_is_told(NEW.workspace_id, '', '', 'policy.activated', NULL,
            CASE WHEN NEW.active THEN named ELSE jsonb_build_object('previous', named) END) THEN
        RAISE EXCEPTION 'a policy comes into force, and goes out of it, with its event on the record'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER policy_is_in_force_on_the_record
    AFTER INSERT OR UPDATE OF active ON approvals_policyversion
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION policy_is_in_force_on_the_record();
"""

GLASS = """
CREATE FUNCTION glass_is_reviewed_on_the_record() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF workspaces_owns(TG_RELID) THEN RETURN NULL; END IF;
    IF OLD.reviewed_at IS NOT NULL OR NOT EXISTS (
        SELECT FROM approvals_approval a LEFT JOIN ledger_action d ON d.id = a.action_id
        WHERE a.id = NEW.approval_id AND approvals_is_told(
            a.workspace_id, a.run_ref, coalesce(d.action, ''), 'break_glass.reviewed',
            NEW.reviewed_by_id::text, jsonb_build_object('approval', a.id))) THEN
        RAISE EXCEPTION 'a review stands with its event on the record, once'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER glass_is_reviewed_on_the_record
    AFTER UPDATE OF reviewed_at, reviewed_by_id ON approvals_brokenglass
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION glass_is_reviewed_on_the_record();
"""

DRAWN = """
CREATE FUNCTION use_is_changed_on_the_record() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF workspaces_owns(TG_RELID) OR NOT EXISTS (
        SELECT FROM approvals_approval a WHERE a.id = NEW.approval_id
            AND NOT approvals_is_told(a.workspace_id, NEW.run_ref, NEW.action, 'approval.drawn',
                NULL, jsonb_build_object('approval', NEW.approval_id))) THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'what was drawn is changed with its event on the record'
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE CONSTRAINT TRIGGER use_is_changed_on_the_record AFTER UPDATE ON approvals_grantuse
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION use_is_changed_on_the_record();
"""

SIGNING_KEY = """
CREATE FUNCTION signing_key_stays_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.removed_at IS NOT NULL AND NEW.removed_at IS DISTINCT FROM OLD.removed_at
            OR NEW.sign_count < OLD.sign_count) AND NOT workspaces_owns(TG_RELID) THEN
        RAISE EXCEPTION 'a key that was taken away stays so, and its counter only rises'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER signing_key_stays_removed BEFORE UPDATE ON approvals_signingkey
    FOR EACH ROW EXECUTE FUNCTION signing_key_stays_removed();
"""

# Ten thousand entries may come at once: each looks for its version, and that for its event.
LISTED = """
CREATE FUNCTION list_change_is_on_the_record() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF workspaces_owns(TG_RELID) OR EXISTS (
        SELECT FROM approvals_namedlist l WHERE l.id = NEW.list_id AND approvals_is_told(
            l.workspace_id, '', '', 'list.changed', NEW.by_id::text,
            jsonb_build_object('list', l.name, 'version', NEW.version, 'digest', NEW.digest))) THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'a list is changed with its event on the record'
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE CONSTRAINT TRIGGER list_change_is_on_the_record AFTER INSERT ON approvals_listchange
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION list_change_is_on_the_record();

CREATE FUNCTION entry_is_of_a_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF workspaces_owns(TG_RELID) THEN RETURN NULL; END IF;
    IF TG_OP = 'UPDATE' AND OLD.until IS NOT NULL OR NOT EXISTS (
        SELECT FROM approvals_listchange c
        WHERE c.list_id = NEW.list_id AND c.at >= transaction_timestamp()
            AND c.version = CASE WHEN TG_OP = 'UPDATE' THEN NEW.until ELSE NEW.since END) THEN
        RAISE EXCEPTION 'a value comes and goes with a version of its list'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER entry_is_of_a_change AFTER INSERT OR UPDATE ON approvals_listentry
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION entry_is_of_a_change();
"""

KEPT = TOLD + POLICY + GLASS + DRAWN + SIGNING_KEY + LISTED

AS_BEFORE = """
DROP TRIGGER entry_is_of_a_change ON approvals_listentry;
DROP TRIGGER list_change_is_on_the_record ON approvals_listchange;
DROP FUNCTION entry_is_of_a_change();
DROP FUNCTION list_change_is_on_the_record();
DROP TRIGGER signing_key_stays_removed ON approvals_signingkey;
DROP TRIGGER use_is_changed_on_the_record ON approvals_grantuse;
DROP TRIGGER glass_is_reviewed_on_the_record ON approvals_brokenglass;
DROP TRIGGER policy_is_in_force_on_the_record ON approvals_policyversion;
DROP FUNCTION signing_key_stays_removed();
DROP FUNCTION use_is_changed_on_the_record();
DROP FUNCTION glass_is_reviewed_on_the_record();
DROP FUNCTION policy_is_in_force_on_the_record();
DROP FUNCTION approvals_is_told(bigint, text, text, text, text, jsonb);
"""


class Migration(migrations.Migration):

    dependencies = [
        ("approvals", "0017_daily_summaries"),
        ("workspaces", "0007_rights_on_the_record"),
        ("ledger", "0001_squashed_0019_record_repaired"),
    ]

    operations = [migrations.RunSQL(KEPT, AS_BEFORE)]
