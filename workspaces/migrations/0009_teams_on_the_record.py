"""A team begins empty, and who is taken out of one, or what a team may no longer do, is told of as
what comes is (0007_rights_on_the_record): a right that is missing decides as well.

All of this binds the role as which the desk runs; whoever owns the tables may do anything.
"""

from django.db import migrations

TEAM = """
CREATE FUNCTION team_begins_empty() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT workspaces_owns(TG_RELID) AND (
        EXISTS (SELECT FROM workspaces_user_groups g WHERE g.group_id = NEW.group_id)
        OR EXISTS (SELECT FROM workspaces_workspacegrouppermission p
            WHERE p.group_id = NEW.group_id)) THEN
        RAISE EXCEPTION 'a team begins with nobody in it, and may nothing yet'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER team_begins_empty BEFORE INSERT ON workspaces_team
    FOR EACH ROW EXECUTE FUNCTION team_begins_empty();
"""

GONE = """
CREATE FUNCTION member_goes_as_told() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT workspaces_owns(TG_RELID) AND EXISTS (
        SELECT FROM workspaces_team t, workspaces_user u
        WHERE t.group_id = OLD.group_id AND u.id = OLD.user_id
            AND NOT workspaces_is_told(t.workspace_id, 'member.removed',
                jsonb_build_object('team', t.name, 'person', u.email))) THEN
        RAISE EXCEPTION 'nobody is taken out of a team without the act that tells of it'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER member_goes_as_told AFTER UPDATE OR DELETE ON workspaces_user_groups
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION member_goes_as_told();
"""

WITHDRAWN = """
CREATE FUNCTION right_goes_as_told() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT workspaces_owns(TG_RELID) AND EXISTS (
        SELECT FROM workspaces_team t, auth_permission p
        WHERE t.group_id = OLD.group_id AND p.id = OLD.permission_id
            AND NOT workspaces_is_told(t.workspace_id, 'team.withdrawn',
                jsonb_build_object('team', t.name, 'may', p.codename))) THEN
        RAISE EXCEPTION 'no right is withdrawn without the act that tells of it'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER right_goes_as_told
    AFTER UPDATE OR DELETE ON workspaces_workspacegrouppermission
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION right_goes_as_told();
"""

AS_BEFORE = """
DROP TRIGGER right_goes_as_told ON workspaces_workspacegrouppermission;
DROP TRIGGER member_goes_as_told ON workspaces_user_groups;
DROP TRIGGER team_begins_empty ON workspaces_team;
DROP FUNCTION right_goes_as_told();
DROP FUNCTION member_goes_as_told();
DROP FUNCTION team_begins_empty();
"""


class Migration(migrations.Migration):

    dependencies = [("workspaces", "0008_group_names")]

    operations = [migrations.RunSQL(TEAM + GONE + WITHDRAWN, AS_BEFORE)]
