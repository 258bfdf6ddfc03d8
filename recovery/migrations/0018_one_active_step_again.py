"""The partial unique index that 0015 has taken away with the plain one on the same column.

Django drops every index on a column that loses `db_index`, but for those in Meta.indexes; those of
Meta.constraints go with them.
"""

from django.db import migrations

AGAIN = """
CREATE UNIQUE INDEX IF NOT EXISTS one_active_step_of_a_plan ON recovery_step (plan_id)
WHERE state IN ('claimed', 'intended')
"""


class Migration(migrations.Migration):
    dependencies = [("recovery", "0017_the_databases_moments")]

    operations = [migrations.RunSQL(AGAIN, migrations.RunSQL.noop)]
