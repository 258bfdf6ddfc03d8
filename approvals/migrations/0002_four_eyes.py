"""Four eyes in the database: requester and owner are copied onto a decision by trigger, so that the
check constraint `four_eyes` does not depend on what the code wrote."""

from django.db import migrations

COPY = """
CREATE FUNCTION decision_copies_requester() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT requested_by_id, agent_owner_id, self_approval
      INTO NEW.requester_id, NEW.owner_id, NEW.self_approval
      FROM approvals_approval WHERE id = NEW.approval_id;
    RETURN NEW;
END $$;
CREATE TRIGGER decision_four_eyes BEFORE INSERT OR UPDATE ON approvals_decision
    FOR EACH ROW EXECUTE FUNCTION decision_copies_requester();
"""


class Migration(migrations.Migration):
    dependencies = [("approvals", "0001_initial")]

    operations = [
        migrations.RunSQL(
            COPY,
            "DROP TRIGGER decision_four_eyes ON approvals_decision;"
            "DROP FUNCTION decision_copies_requester();",
        )
    ]
