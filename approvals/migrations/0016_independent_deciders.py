"""Four eyes, once more in the database: who decides has a proven address, and nobody who asked
brought them in a short while ago. Both are looked up when the decision is written, and kept."""

from django.db import migrations, models
from django.db.models import F, Q

COPY = """
CREATE OR REPLACE FUNCTION decision_copies_requester() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    here bigint;
BEGIN
    SELECT workspace_id, requested_by_id, agent_owner_id, self_approval
      INTO here, NEW.requester_id, NEW.owner_id, NEW.self_approval
      FROM approvals_approval WHERE id = NEW.approval_id;
    IF TG_OP = 'UPDATE' AND (NEW.approval_id, NEW.person_id, NEW.granted)
            = (OLD.approval_id, OLD.person_id, OLD.granted) THEN
        NEW.is_proven := OLD.is_proven;
        NEW.is_independent := OLD.is_independent;
    ELSE
        NEW.is_proven := workspaces_address_is_proven(NEW.person_id);
        NEW.is_independent := workspaces_is_independent(
            NEW.person_id, ARRAY[NEW.requester_id, NEW.owner_id], here);
    END IF;
    RETURN NEW;
END $$;
"""
AS_IT_WAS = """
CREATE OR REPLACE FUNCTION decision_copies_requester() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT requested_by_id, agent_owner_id, self_approval
      INTO NEW.requester_id, NEW.owner_id, NEW.self_approval
      FROM approvals_approval WHERE id = NEW.approval_id;
    RETURN NEW;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0015_approvals_of_a_run"),
        ("workspaces", "0004_who_brought_whom_in"),
    ]

    operations = [
        migrations.AddField(
            model_name="decision",
            name="is_independent",
            field=models.BooleanField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="decision",
            name="is_proven",
            field=models.BooleanField(editable=False, null=True),
        ),
        migrations.RemoveConstraint(model_name="decision", name="four_eyes"),
        migrations.AddConstraint(
            model_name="decision",
            constraint=models.CheckConstraint(
                condition=Q(self_approval=True)
                | Q(granted=False)
                | (
                    (Q(requester_id__isnull=True) | ~Q(person_id=F("requester_id")))
                    & (Q(owner_id__isnull=True) | ~Q(person_id=F("owner_id")))
                    & (Q(is_independent__isnull=True) | Q(is_independent=True))
                ),
                name="four_eyes",
            ),
        ),
        migrations.AddConstraint(
            model_name="decision",
            constraint=models.CheckConstraint(
                condition=Q(is_proven__isnull=True) | Q(is_proven=True),
                name="decided_from_a_proven_address",
            ),
        ),
        migrations.RunSQL(COPY, AS_IT_WAS),
    ]
