"""The desk's own role names the moment of a yes for later, and lets a second team answer; no more.

A moment only moves away, when to escalate stands with the question, and the second team is the one
that the question's rule names, once its time has come. Whoever owns the tables may do anything.
"""

from django.db import migrations

KEPT = """
CREATE FUNCTION approval_is_only_held_up() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_has_role(current_user, (SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'USAGE') THEN
        RETURN NEW;
    END IF;
    IF OLD.not_before IS NOT NULL
        AND (NEW.not_before IS NULL OR NEW.not_before < OLD.not_before) THEN
        RAISE EXCEPTION 'what was approved for later waits no shorter'
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF NEW.escalate_at IS NOT NULL AND NEW.escalate_at IS DISTINCT FROM OLD.escalate_at THEN
        RAISE EXCEPTION 'when a second team is asked stands with the question'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER approval_is_only_held_up BEFORE UPDATE OF not_before, escalate_at
    ON approvals_approval FOR EACH ROW EXECUTE FUNCTION approval_is_only_held_up();

CREATE FUNCTION requirement_escalates_by_its_rule() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_has_role(current_user, (SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'USAGE') THEN
        RETURN NEW;
    END IF;
    IF OLD.escalated_to_id IS NOT NULL OR NOT EXISTS (
        SELECT FROM approvals_approval asked
        JOIN workspaces_team second ON second.workspace_id = asked.workspace_id
        CROSS JOIN jsonb_array_elements(asked.rules) rule
        WHERE asked.id = NEW.approval_id AND second.id = NEW.escalated_to_id
            AND asked.state = 'waiting' AND asked.escalate_at <= clock_timestamp()
            AND rule -> 'escalate' ->> 'team' = second.name)
    THEN
        RAISE EXCEPTION 'a second team is the one of the rule, once its time has come'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER requirement_escalates_by_its_rule BEFORE UPDATE OF escalated_to_id
    ON approvals_requirement
    FOR EACH ROW EXECUTE FUNCTION requirement_escalates_by_its_rule();
"""

AS_BEFORE = """
DROP TRIGGER requirement_escalates_by_its_rule ON approvals_requirement;
DROP FUNCTION requirement_escalates_by_its_rule();
DROP TRIGGER approval_is_only_held_up ON approvals_approval;
DROP FUNCTION approval_is_only_held_up();
"""


class Migration(migrations.Migration):

    dependencies = [("approvals", "0013_signed_decisions")]

    operations = [migrations.RunSQL(KEPT, AS_BEFORE)]
