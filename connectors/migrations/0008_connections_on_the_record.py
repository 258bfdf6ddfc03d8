"""Where a connection and its link lead, and with which credentials, changes with the act that tells of it.

This binds the role as which the desk runs; whoever owns the tables may do anything.
"""

from django.db import migrations

KEPT = """
CREATE FUNCTION connection_is_told_of() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    named jsonb := jsonb_build_object('connection', NEW.name);
    kind text := 'connection.created';
BEGIN
    IF workspaces_owns(TG_RELID) THEN RETURN NULL; END IF;
    IF TG_OP = 'UPDATE' THEN
        IF (OLD.workspace_id, OLD.name, OLD.connector, OLD.settings, OLD.sandbox_settings,
                OLD.settings_digest, OLD.revision, OLD.link)
            IS DISTINCT FROM (NEW.workspace_id, NEW.name, NEW.connector, NEW.settings,
                NEW.sandbox_settings, NEW.settings_digest, NEW.revision, NEW.link) THEN
            kind := 'connection.updated';
            named := named || jsonb_build_object(
                'revision', NEW.revision, 'settings_digest', NEW.settings_digest);
        ELSIF NEW.observe_secret_id IS NOT NULL
                AND OLD.observe_secret_id IS DISTINCT FROM NEW.observe_secret_id
            OR NEW.compensate_secret_id IS NOT NULL
                AND OLD.compensate_secret_id IS DISTINCT FROM NEW.compensate_secret_id THEN
            kind := 'connection.secret_set';
        ELSIF OLD.disabled_at IS NOT NULL AND NEW.disabled_at IS NULL THEN
            kind := 'connection.enabled';
        ELSE
            RETURN NULL;
        END IF;
    END IF;
    IF NOT workspaces_is_told(NEW.workspace_id, kind, named) THEN
        RAISE EXCEPTION 'a connection changes with the act that tells of it'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER connection_is_told_of
    AFTER INSERT OR UPDATE OF workspace_id, name, connector, settings, sandbox_settings,
        settings_digest, revision, link, observe_secret_id, compensate_secret_id, disabled_at
    ON connectors_connection
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION connection_is_told_of();
"""

AS_BEFORE = """
DROP TRIGGER connection_is_told_of ON connectors_connection;
DROP FUNCTION connection_is_told_of();
"""


class Migration(migrations.Migration):

    dependencies = [
        ("connectors", "0007_links"),
        ("workspaces", "0007_rights_on_the_record"),
    ]

    operations = [migrations.RunSQL(KEPT, AS_BEFORE)]
