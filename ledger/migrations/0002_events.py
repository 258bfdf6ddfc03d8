"""The event table: partitioned by receipt time from the first day, and append-only by trigger.

Django cannot declare a partitioned table, so it is made here by hand. Weekly partitions are made
ahead by `ledger.partitions`; the default partition catches what no partition covers, so that a
missing one loses nothing, and `/readyz` tells of rows in it.
"""

from django.db import migrations

TABLE = """
CREATE SEQUENCE ledger_place AS bigint;
CREATE TABLE ledger_event (
    place bigint NOT NULL DEFAULT nextval('ledger_place'),
    received_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    workspace_id bigint NOT NULL REFERENCES workspaces_workspace (id),
    event_id varchar(64) NOT NULL,
    type varchar(40) NOT NULL,
    "time" timestamptz,
    run varchar(120) NOT NULL DEFAULT '',
    action varchar(120) NOT NULL DEFAULT '',
    n integer,
    trace jsonb,
    actor_kind varchar(8) NOT NULL,
    actor varchar(120) NOT NULL,
    key_prefix varchar(12) NOT NULL DEFAULT '',
    trusted boolean NOT NULL DEFAULT false,
    data jsonb,
    salt bytea,
    digest bytea NOT NULL,
    PRIMARY KEY (place, received_at)
) PARTITION BY RANGE (received_at);
CREATE INDEX ledger_event_of_run ON ledger_event (workspace_id, run, action, place);
CREATE INDEX ledger_event_newest ON ledger_event (workspace_id, place DESC);
CREATE TABLE ledger_event_default PARTITION OF ledger_event DEFAULT;
"""

# The owner's erase() sets this transaction-local setting; nothing else may change a row.
GUARDS = """
CREATE FUNCTION ledger_event_only_grows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND current_setting('amends.erasing', true) = 'yes'
       AND NEW.data IS NULL AND NEW.salt IS NULL
       AND (to_jsonb(NEW) - 'data' - 'salt') = (to_jsonb(OLD) - 'data' - 'salt') THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'the ledger only grows: % on % is refused', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER ledger_event_no_change BEFORE UPDATE OR DELETE ON ledger_event
    FOR EACH ROW EXECUTE FUNCTION ledger_event_only_grows();
CREATE TRIGGER ledger_event_no_truncate BEFORE TRUNCATE ON ledger_event
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_event_only_grows();
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0001_initial"), ("workspaces", "0001_initial")]

    operations = [
        migrations.RunSQL(
            TABLE, "DROP TABLE ledger_event; DROP SEQUENCE ledger_place;"
        ),
        migrations.RunSQL(
            GUARDS,
            "DROP TRIGGER ledger_event_no_truncate ON ledger_event;"
            "DROP TRIGGER ledger_event_no_change ON ledger_event;"
            "DROP FUNCTION ledger_event_only_grows();",
        ),
    ]
