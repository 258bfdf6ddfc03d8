"""The partial unique index that 0015 has taken away with the plain one on the same column.

Django drops every index on a column that loses `db_index`, but for those in Meta.indexes; those of
Meta.constraints go with them. It is built while the engine goes on; where it was away, two steps of
a plan may have become active at once, and then it cannot be built until they are settled.
"""

from django.core.management.base import CommandError
from django.db import migrations

NAME = "one_active_step_of_a_plan"
IS_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"
TWO_ACTIVE = """
SELECT workspace.slug, step.plan_id, array_agg(step.position ORDER BY step.position)
FROM recovery_step step
JOIN workspaces_workspace workspace ON workspace.id = step.workspace_id
WHERE step.state IN ('claimed', 'intended')
GROUP BY workspace.slug, step.plan_id HAVING count(*) > 1 ORDER BY step.plan_id LIMIT 20
"""
BUILD = f"""
CREATE UNIQUE INDEX CONCURRENTLY {NAME} ON recovery_step (plan_id)
WHERE state IN ('claimed', 'intended')
"""


def build(apps, schema_editor):
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(IS_VALID, [NAME])
        found = cursor.fetchone()
        if found == (True,):
            return
        refuse_two(cursor)
        if found:  # an earlier try was interrupted
            cursor.execute(f"DROP INDEX CONCURRENTLY {NAME}")
        cursor.execute(BUILD)


def refuse_two(cursor):
    """Say which plans have two steps under way, before anything is changed."""
    cursor.execute(TWO_ACTIVE)
    plans = [
        f"plan {plan} of {workspace} (steps {', '.join(map(str, steps))})"
        for workspace, plan, steps in cursor.fetchall()
    ]
    if plans:
        raise CommandError(
            "A plan has one step under way at a time, and here there are more: "
            + "; ".join(plans)
            + ". Nothing was changed. Let the workers of the version that ran before go on, or"
            " start them again: within minutes they take back what was claimed and ask for the"
            " outcome of what was sent. What they cannot find out, settle on the page of the case."
            " Then migrate again."
        )


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("recovery", "0017_the_databases_moments")]

    operations = [migrations.RunPython(build, migrations.RunPython.noop)]
