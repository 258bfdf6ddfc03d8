"""Nobody is put into a team, granted a right or given a key without the act that tells of it, in the
same transaction: the act waits in the outbox, and does not leave it before the ledger has it.

And a right that was handed over and ended, or a key that was revoked, stays so. All of this binds
the role as which the desk runs; whoever owns the tables may do anything.
"""

from django.db import migrations

OWNS = """
CREATE FUNCTION workspaces_owns(subject oid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT pg_has_role(current_user, (SELECT relowner FROM pg_class WHERE oid = subject), 'USAGE')
$$;
CREATE FUNCTION workspaces_is_told(here bigint, kind text, what jsonb) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM workspaces_act a WHERE a.workspace_id = here AND a.type = kind
        AND a.taken_in_at IS NULL AND a.data @> what)
$$;
"""

MEMBER = """
CREATE FUNCTION member_is_told_of() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    joined record;
BEGIN
    IF workspaces_owns(TG_RELID) THEN RETURN NULL; END IF;
    FOR joined IN SELECT t.workspace_id, t.name, u.email FROM workspaces_team t, workspaces_user u
        WHERE t.group_id = NEW.group_id AND u.id = NEW.user_id
    LOOP
        IF NOT workspaces_is_told(joined.workspace_id, 'member.added',
                jsonb_build_object('team', joined.name, 'person', joined.email)) THEN
            RAISE EXCEPTION 'nobody is put into a team without the act that tells of it'
                USING ERRCODE = 'restrict_violation';
        END IF;
    END LOOP;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER member_is_told_of AFTER INSERT OR UPDATE ON workspaces_user_groups
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION member_is_told_of();
"""

# Who brought somebody in keeps the two from being two; the row goes with the standing alone.
MEMBERSHIP = """
CREATE FUNCTION membership_is_told_of() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    stood record;
BEGIN
    IF workspaces_owns(TG_RELID) THEN RETURN NULL; END IF;
    SELECT t.workspace_id, t.name, t.group_id, u.email INTO stood
        FROM workspaces_team t, workspaces_user u WHERE t.id = OLD.team_id AND u.id = OLD.person_id;
    IF NOT FOUND THEN RETURN NULL; END IF;
    IF TG_OP = 'DELETE' THEN
        IF EXISTS (SELECT FROM workspaces_user_groups g
            WHERE g.user_id = OLD.person_id AND g.group_id = stood.group_id)
            AND NOT EXISTS (SELECT FROM workspaces_membership m
                WHERE m.person_id = OLD.person_id AND m.team_id = OLD.team_id) THEN
            RAISE EXCEPTION 'who brought a member in is known as long as they stand in the team'
                USING ERRCODE = 'restrict_violation';
        END IF;
    ELSIF NOT workspaces_is_told(stood.workspace_id, 'member.added',
                jsonb_build_object('team', stood.name, 'person', stood.email))
        AND NOT workspaces_is_told(stood.workspace_id, 'member.vouched',
                jsonb_build_object('person', stood.email)) THEN
        RAISE EXCEPTION 'who brought a member in is changed with the act that tells of it'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER membership_is_told_of AFTER UPDATE OR DELETE ON workspaces_membership
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION membership_is_told_of();
"""

GRANTED = """
CREATE FUNCTION right_is_told_of() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    granted text;
BEGIN
    IF workspaces_owns(TG_RELID) THEN RETURN NULL; END IF;
    SELECT codename INTO granted FROM auth_permission WHERE id = NEW.permission_id;
    IF NOT EXISTS (SELECT FROM workspaces_team t
        WHERE t.group_id = NEW.group_id AND t.workspace_id = NEW.content_object_id
            AND (workspaces_is_told(t.workspace_id, 'team.granted',
                    jsonb_build_object('team', t.name, 'may', granted))
                OR workspaces_is_told(t.workspace_id, 'team.created',
                    jsonb_build_object('team', t.name, 'may', jsonb_build_array(granted))))) THEN
        RAISE EXCEPTION 'no team is granted a right without the act that tells of it'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER right_is_told_of
    AFTER INSERT OR UPDATE ON workspaces_workspacegrouppermission
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION right_is_told_of();
"""

KEY = """
CREATE FUNCTION key_is_told_of() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF workspaces_owns(TG_RELID) THEN RETURN NULL; END IF;
    IF NOT workspaces_is_told(
        NEW.workspace_id, 'key.created', jsonb_build_object('key', NEW.prefix)) THEN
        RAISE EXCEPTION 'no key is made without the act that tells of it'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION key_stays_revoked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.revoked_at IS DISTINCT FROM NEW.revoked_at AND OLD.revoked_at IS NOT NULL
        AND NOT workspaces_owns(TG_RELID) THEN
        RAISE EXCEPTION 'a key that was revoked stays so' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
"""
KEYS = ("workspaces_apikey", "workspaces_persontoken", "workspaces_directorytoken")
OF_EACH = """
CREATE CONSTRAINT TRIGGER key_is_told_of AFTER INSERT ON {0}
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION key_is_told_of();
CREATE TRIGGER key_stays_revoked BEFORE UPDATE OF revoked_at ON {0}
    FOR EACH ROW EXECUTE FUNCTION key_stays_revoked();
"""

DELEGATION = """
CREATE FUNCTION delegation_stays_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.ended_at IS NOT NULL AND NOT workspaces_owns(TG_RELID) THEN
        RAISE EXCEPTION 'a right that was handed back is handed over anew'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER delegation_stays_ended BEFORE UPDATE ON workspaces_delegation
    FOR EACH ROW EXECUTE FUNCTION delegation_stays_ended();
"""

# An act leaves the outbox by its event, in the transaction that writes that.
ACT = """
CREATE FUNCTION act_is_taken_in() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF workspaces_owns(TG_RELID) THEN RETURN NULL; END IF;
    IF TG_OP = 'DELETE' THEN
        IF OLD.taken_in_at IS NULL THEN
            RAISE EXCEPTION 'an act goes once the ledger has it'
                USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NULL;
    END IF;
    IF OLD.taken_in_at IS NOT NULL OR NOT EXISTS (
        SELECT FROM ledger_event e
        WHERE e.workspace_id = NEW.workspace_id AND e.received_at >= transaction_timestamp()
            AND e.run = '' AND e.type = NEW.type
            AND (e.data ->> 'at')::timestamptz = NEW.at) THEN
        RAISE EXCEPTION 'an act is taken in by its event' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER act_is_taken_in AFTER UPDATE OF taken_in_at OR DELETE
    ON workspaces_act
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION act_is_taken_in();
"""

OF_KEYS = KEY + "".join(map(OF_EACH.format, KEYS))
KEPT = OWNS + MEMBER + MEMBERSHIP + GRANTED + OF_KEYS + DELEGATION + ACT

AS_BEFORE = (
    "DROP TRIGGER act_is_taken_in ON workspaces_act;"
    "DROP TRIGGER delegation_stays_ended ON workspaces_delegation;"
    + "".join(
        f"DROP TRIGGER key_stays_revoked ON {one}; DROP TRIGGER key_is_told_of ON {one};"
        for one in KEYS
    )
    + "DROP TRIGGER right_is_told_of ON workspaces_workspacegrouppermission;"
    "DROP TRIGGER membership_is_told_of ON workspaces_membership;"
    "DROP TRIGGER member_is_told_of ON workspaces_user_groups;"
    "DROP FUNCTION act_is_taken_in(); DROP FUNCTION delegation_stays_ended();"
    "DROP FUNCTION key_stays_revoked(); DROP FUNCTION key_is_told_of();"
    "DROP FUNCTION right_is_told_of(); DROP FUNCTION membership_is_told_of();"
    "DROP FUNCTION member_is_told_of(); DROP FUNCTION workspaces_is_told(bigint, text, jsonb);"
    "DROP FUNCTION workspaces_owns(oid);"
)


class Migration(migrations.Migration):

    dependencies = [("workspaces", "0006_directory")]

    operations = [migrations.RunSQL(KEPT, AS_BEFORE)]
