"""Effects without a constraint on their action, as attempts are since 0014.

They are written with their action, in one transaction and under the lock of its run, and go with it
when Django deletes.
"""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ledger", "0015_erasures_in_parts")]

    operations = [
        migrations.AlterField(
            model_name="effect",
            name="action",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="effects",
                to="ledger.action",
            ),
        ),
    ]
