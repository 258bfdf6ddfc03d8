"""What a policy says about its workspace (who counts when, what is masked, how long is kept) changes
with the event that puts a policy in force, and what the affected person wants stands as they said it.

All of this binds the role as which the desk runs; whoever owns the tables may do anything.
"""

from django.db import migrations

SETTINGS = """
CREATE FUNCTION settings_are_those_of_a_policy() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT workspaces_owns(TG_RELID)
        AND (OLD.mask, OLD.mask_shows_last4, OLD.capture_intent, OLD.capture_snapshot,
            OLD.retention_days, OLD.stuck_after_seconds, OLD.probation_seconds)
        IS DISTINCT FROM (NEW.mask, NEW.mask_shows_last4, NEW.capture_intent,
            NEW.capture_snapshot, NEW.retention_days, NEW.stuck_after_seconds,
            NEW.probation_seconds)
        AND NOT approvals_is_told(NEW.id, '', '', 'policy.activated', NULL, '{}') THEN
        RAISE EXCEPTION 'what a policy says of its workspace changes with the policy alone'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER settings_are_those_of_a_policy AFTER UPDATE ON workspaces_workspace
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION settings_are_those_of_a_policy();
"""

WISH = """
CREATE FUNCTION wish_is_told_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF workspaces_owns(TG_RELID) OR (NEW.answer = '' AND (TG_OP = 'INSERT' OR OLD.answer = '')) THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' OR OLD.answer <> '' OR NOT EXISTS (
        SELECT FROM approvals_approval a LEFT JOIN ledger_action d ON d.id = a.action_id
        WHERE a.id = NEW.approval_id AND approvals_is_told(
            a.workspace_id, a.run_ref, coalesce(d.action, ''), 'approval.affected_answered', NULL,
            jsonb_build_object('approval', a.id, 'affected', NEW.person_ref,
                'answer', NEW.answer))) THEN
        RAISE EXCEPTION 'what an affected person wants is written once, with its event'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER wish_is_told_once
    AFTER INSERT OR UPDATE OF answer, note, answered_at ON approvals_wish
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wish_is_told_once();
"""

AS_BEFORE = """
DROP TRIGGER wish_is_told_once ON approvals_wish;
DROP TRIGGER settings_are_those_of_a_policy ON workspaces_workspace;
DROP FUNCTION wish_is_told_once();
DROP FUNCTION settings_are_those_of_a_policy();
"""


class Migration(migrations.Migration):

    dependencies = [
        ("approvals", "0021_memory_with_fewer_indexes"),
        ("workspaces", "0009_teams_on_the_record"),
    ]

    operations = [migrations.RunSQL(SETTINGS + WISH, AS_BEFORE)]
