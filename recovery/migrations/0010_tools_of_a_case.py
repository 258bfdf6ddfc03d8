from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models

FILL = """
UPDATE recovery_case c SET tools = found.tools
FROM (SELECT run_id, array_agg(DISTINCT lower(tool)) AS tools FROM ledger_action
      WHERE tool <> '' GROUP BY run_id) found
WHERE found.run_id = c.run_id"""


class Migration(migrations.Migration):
    dependencies = [("recovery", "0009_counted_views"), ("ledger", "0007_rare_things")]

    operations = [
        migrations.AddField(
            model_name="case",
            name="tools",
            field=ArrayField(
                base_field=models.CharField(max_length=200),
                default=list,
                help_text="Every tool of the run, in lower case: tool: is asked of this row alone",
                size=None,
            ),
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
    ]
