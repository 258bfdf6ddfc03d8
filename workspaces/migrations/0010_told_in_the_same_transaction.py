"""What tells of a change is written in the change's own transaction, not before it and not beside it.

An act waits some seconds for the ledger, and a transaction may be kept open until others have put
something on the record: neither tells of what somebody else changes then.

This binds the role as which the desk runs; whoever owns the tables may do anything.
"""

from django.db import migrations

# A row that we see and whose transaction is still under way is ours, written by a part of this very
# transaction (a savepoint has a number of its own). The number of a row lacks its upper half, which
# is that of the nearest one.
OURS = """
CREATE FUNCTION workspaces_is_ours(made xid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT pg_xact_status((now_at + (made::text::bigint - now_at % 4294967296 + 6442450944)
        % 4294967296 - 2147483648)::text::xid8) = 'in progress'
    FROM (SELECT pg_current_xact_id()::text::bigint) known (now_at)
$$;
"""

TOLD = """
CREATE OR REPLACE FUNCTION workspaces_is_told(here bigint, kind text, what jsonb) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM workspaces_act a WHERE a.workspace_id = here AND a.type = kind
        AND a.taken_in_at IS NULL AND a.data @> what{ours})
$$;
"""

TAKEN_IN = """
CREATE OR REPLACE FUNCTION act_is_taken_in() RETURNS trigger LANGUAGE plpgsql AS $$
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
            AND (e.data ->> 'at')::timestamptz = NEW.at{ours}) THEN
        RAISE EXCEPTION 'an act is taken in by its event' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
"""

KEPT = (
    OURS
    + TOLD.format(ours=" AND workspaces_is_ours(a.xmin)")
    + TAKEN_IN.format(ours=" AND workspaces_is_ours(e.xmin)")
)
AS_BEFORE = (
    TOLD.format(ours="") + TAKEN_IN.format(ours="") + "DROP FUNCTION workspaces_is_ours(xid);"
)


class Migration(migrations.Migration):

    dependencies = [("workspaces", "0009_teams_on_the_record")]

    operations = [migrations.RunSQL(KEPT, AS_BEFORE)]
