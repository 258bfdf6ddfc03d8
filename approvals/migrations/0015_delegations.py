"""An answer in somebody else's right. What the database makes of it stands in 0016, which has the
same function.
"""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

HOLDS_UP = {
    "adding-foreign-key-constraint": "decisions are some thousands: milliseconds",
    "constraint-missing-not-valid": "decisions are some thousands: milliseconds",
    "disallowed-unique-constraint": "decisions are some thousands: milliseconds",
}

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
    ]
