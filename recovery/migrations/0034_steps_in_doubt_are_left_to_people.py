"""A step that waits to be sent again while a try of it is in doubt goes to people at a stop."""

from django.db import migrations, models

HOLDS_UP = {
    "ban-drop-constraint": "it is taken away and put back, wider, in the same transaction",
    "constraint-missing-not-valid": "a step is one undone effect, and `begin` reads none: no more"
    " than seconds where there are a million",
}


class Migration(migrations.Migration):

    dependencies = [
        ('connectors', '0008_connections_on_the_record'),
        ('ledger', '0006_roots_before_their_runs'),
        ('recovery', '0033_reopened_cases_are_news'),
        ('workspaces', '0011_log_in_of_a_workspace'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='step',
            name='step_moves',
        ),
        migrations.AddConstraint(
            model_name='step',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state__in', ['blocked', 'ready']), ('was', '')), models.Q(('state__in', ['cancelled', 'ready', 'skipped']), ('was', 'blocked')), models.Q(('state__in', ['cancelled', 'claimed', 'needs_human', 'skipped']), ('was', 'ready')), models.Q(('state__in', ['cancelled', 'drifted', 'intended', 'needs_human', 'ready', 'verified']), ('was', 'claimed')), models.Q(('state__in', ['applied', 'needs_human', 'ready', 'unknown']), ('was', 'intended')), models.Q(('state__in', ['applied', 'needs_human', 'ready']), ('was', 'unknown')), models.Q(('state__in', ['needs_human', 'reported', 'verified']), ('was', 'applied')), models.Q(('state__in', ['cancelled', 'skipped']), ('was', 'drifted')), models.Q(('state__in', ['applied', 'cancelled', 'ready', 'skipped']), ('was', 'needs_human')), _connector='OR'), name='step_moves'),
        ),
    ]
