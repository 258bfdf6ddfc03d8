"""What people asked back and the affected person are found under the names of their models."""

import django.db.models.deletion
from django.db import migrations, models


def of_approval(related_name):
    return models.ForeignKey(
        on_delete=django.db.models.deletion.CASCADE,
        related_name=related_name,
        to="approvals.approval",
    )


class Migration(migrations.Migration):
    dependencies = [("approvals", "0026_ages_of_gate_keys")]

    operations = [
        migrations.AlterField("clarification", "approval", of_approval("clarifications")),
        migrations.AlterField("consentrequest", "approval", of_approval("consent_requests")),
    ]
