"""Breaking the glass: the two are nobody who asks, and nobody of each other's circle. And an answer
in somebody else's right: the database looks for the delegation that is in force, copies whose right
it is, and counts the two as one person who has not asked.
"""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

HOLDS_UP = {
    "constraint-missing-not-valid": "decisions are some thousands: milliseconds",
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
            AND NEW.delegation_id IS NOT DISTINCT FROM OLD.delegation_id
            AND NEW.break_glass = OLD.break_glass THEN
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
    IF NEW.break_glass THEN
        NEW.self_approval := false;
        IF NOT EXISTS (SELECT FROM approvals_brokenglass g WHERE g.approval_id = NEW.approval_id) THEN
            RAISE EXCEPTION 'nobody has broken the glass for this'
                USING ERRCODE = 'check_violation';
        END IF;
        NEW.is_independent := NEW.is_independent AND workspaces_is_independent(
            NEW.person_id, ARRAY(SELECT other.person_id FROM approvals_decision other
                WHERE other.approval_id = NEW.approval_id AND other.break_glass
                    AND other.id IS DISTINCT FROM NEW.id), here);
    END IF;
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
        ('approvals', '0015_delegations'),
        ('workspaces', '0005_delegations'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='BrokenGlass',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('begun_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('opened_at', models.DateTimeField(help_text='When the second had agreed', null=True)),
                ('reviewed_at', models.DateTimeField(null=True)),
                ('review', models.TextField(blank=True)),
                ('approval', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='glass', to='approvals.approval')),
                ('reviewed_by', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('team', models.ForeignKey(db_index=False, help_text='Of which both are; NULL: administrators', null=True, on_delete=django.db.models.deletion.PROTECT, to='workspaces.team')),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='workspaces.workspace')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('reviewed_at', None)), fields=['workspace'], name='glass_not_reviewed')],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('review', ''), ('reviewed_at', None), ('reviewed_by', None)), models.Q(('reviewed_at__isnull', False), ('reviewed_by__isnull', False), models.Q(('review', ''), _negated=True)), _connector='OR'), name='glass_reviewed_by_somebody')],
            },
        ),
        migrations.AddField(
            model_name='decision',
            name='break_glass',
            field=models.BooleanField(db_default=False, default=False, help_text='Of one of two who decide in place of others'),
        ),
        migrations.AddConstraint(
            model_name='decision',
            constraint=models.CheckConstraint(condition=models.Q(('break_glass', False), models.Q(('delegation', None), ('fresh_login_at__isnull', False), ('granted', True), ('is_independent', True), ('is_proven', True)), _connector='OR'), name='glass_is_broken_by_two_others'),
        ),
        migrations.RunSQL([COPY], migrations.RunSQL.noop),
    ]
