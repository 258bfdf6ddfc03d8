"""Who brought whom into a team, and the two questions that this answers, as functions: whether a
person's address is proven, and whether two people count as two (workspaces/independence.py)."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

FUNCTIONS = """
CREATE FUNCTION workspaces_address_is_proven(who bigint) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM account_emailaddress a JOIN workspaces_user p ON p.id = a.user_id
        WHERE a.user_id = who AND a.verified AND lower(a.email) = lower(p.email));
END $$;
CREATE FUNCTION workspaces_is_independent(who bigint, others bigint[], here bigint)
RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
    since timestamptz := (SELECT statement_timestamp() - make_interval(secs => w.probation_seconds)
        FROM workspaces_workspace w WHERE w.id = here);
    ours bigint[];
    theirs bigint[];
BEGIN
    IF NOT EXISTS (SELECT FROM workspaces_membership m
            WHERE m.workspace_id = here AND m.added_at > since)
        OR EXISTS (SELECT FROM workspaces_workspace w WHERE w.id = here AND w.founder_id = who)
    THEN
        RETURN NOT (who = ANY (array_remove(others, NULL)));
    END IF;
    ours := who || ARRAY(SELECT unnest(m.sponsors) FROM workspaces_membership m
        WHERE m.workspace_id = here AND m.added_at > since AND m.vouched_at IS NULL
            AND m.person_id = who);
    theirs := array_remove(others, NULL) || ARRAY(
        SELECT unnest(m.sponsors) FROM workspaces_membership m
        WHERE m.workspace_id = here AND m.added_at > since AND m.vouched_at IS NULL
            AND m.person_id = ANY (others));
    RETURN NOT (ours && theirs);
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("workspaces", "0003_heartbeat_failing"),
        ("account", "0009_emailaddress_unique_primary_email"),
    ]

    operations = [
        migrations.AddField(
            model_name="workspace",
            name="founder",
            field=models.ForeignKey(
                help_text="Nobody brought them in, so they count from the first day",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="probation_seconds",
            field=models.PositiveIntegerField(
                db_default=86400,
                default=86400,
                help_text="How long a new member does not count for whoever brought them in",
            ),
        ),
        migrations.CreateModel(
            name="Membership",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "sponsors",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), default=list, size=None
                    ),
                ),
                (
                    "added_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "vouched_at",
                    models.DateTimeField(
                        help_text="When somebody at the server said that they count at once",
                        null=True,
                    ),
                ),
                (
                    "added_by",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="workspaces.team",
                    ),
                ),
                (
                    "workspace",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="workspaces.workspace",
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.UniqueConstraint(
                fields=("team", "person"), name="one_membership_each"
            ),
        ),
        migrations.AddIndex(
            model_name="membership",
            index=models.Index(fields=["workspace", "added_at"], name="newest_members"),
        ),
        migrations.RunSQL(
            FUNCTIONS,
            "DROP FUNCTION workspaces_is_independent; DROP FUNCTION workspaces_address_is_proven;",
        ),
    ]
