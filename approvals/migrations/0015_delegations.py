"""An answer in somebody else's right: the database looks for the delegation that is in force, copies
whose right it is, and counts the two as one person who has not asked.
"""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

HOLDS_UP = {
    "adding-foreign-key-constraint": "decisions are some thousands: milliseconds",
    "constraint-missing-not-valid": "decisions are some thousands: milliseconds",
    "disallowed-unique-constraint": "decisions are some thousands: milliseconds",
}

COPY = """
CREATE OR REPLACE FUNCTION decision_copies_requester() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    here bigint;
    owner bigint;
    the_two bigint[];
BEGIN
    SELECT workspace_id, requested_by_id, agent_owner_id, self_approval
      INTO here, NEW.requester_id, NEW.owner_id, NEW.self_approval
      FROM approvals_approval WHERE id = NEW.approval_id;
    IF TG_OP = 'UPDATE' AND (NEW.approval_id, NEW.person_id, NEW.granted)
            = (OLD.approval_id, OLD.person_id, OLD.granted)
            AND NEW.delegation_id IS NOT DISTINCT FROM OLD.delegation_id THEN
        NEW.principal_id := OLD.principal_id;
        NEW.self_approval := OLD.self_approval;
        NEW.is_proven := OLD.is_proven;
        NEW.is_independent := OLD.is_independent;
        RETURN NEW;
    END IF;
    NEW.is_proven := workspaces_address_is_proven(NEW.person_id);
    NEW.is_independent := workspaces_is_independent(
        NEW.person_id, ARRAY[NEW.requester_id, NEW.owner_id], here);
    the_two := ARRAY[NEW.person_id];
    IF NEW.delegation_id IS NOT NULL THEN
        SELECT d.delegator_id INTO owner FROM workspaces_delegation d
         WHERE d.id = NEW.delegation_id AND d.delegate_id = NEW.person_id
           AND d.workspace_id = here AND d.ended_at IS NULL
           AND d.starts_at <= statement_timestamp() AND d.until > statement_timestamp();
        IF NOT FOUND THEN
            RAISE EXCEPTION 'nobody has handed this right over for now'
                USING ERRCODE = 'check_violation';
        END IF;
        the_two := the_two || owner;
        NEW.self_approval := false;
        NEW.is_proven := NEW.is_proven AND workspaces_address_is_proven(owner);
        NEW.is_independent := NEW.is_independent AND workspaces_is_independent(
            owner, ARRAY[NEW.requester_id, NEW.owner_id], here);
    END IF;
    NEW.principal_id := owner;
    IF EXISTS (SELECT FROM approvals_decision other
            WHERE other.approval_id = NEW.approval_id AND other.id IS DISTINCT FROM NEW.id
                AND (other.person_id = ANY (the_two) OR other.principal_id = ANY (the_two))) THEN
        RAISE EXCEPTION 'one of the two has answered' USING ERRCODE = 'unique_violation';
    END IF;
    RETURN NEW;
END $$;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0014_only_held_up'),
        ('workspaces', '0005_delegations'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='decision',
            name='delegation',
            field=models.ForeignKey(db_index=False, help_text="By which it is an answer in somebody else's right", null=True, on_delete=django.db.models.deletion.PROTECT, related_name='decisions', to='workspaces.delegation'),
        ),
        migrations.AddField(
            model_name='decision',
            name='principal',
            field=models.ForeignKey(db_index=False, editable=False, help_text='In whose right, by that delegation; NULL: their own', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddConstraint(
            model_name='decision',
            constraint=models.UniqueConstraint(fields=('approval', 'principal'), name='one_answer_in_a_right'),
        ),
        migrations.RunSQL([COPY], migrations.RunSQL.noop),
    ]
