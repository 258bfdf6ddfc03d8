"""Hearing of changed teams, so that a policy nobody can meet any more is noticed at once.

A bell only: `teamwork.sweep` finds what it misses.
"""

from functools import partial
from typing import Any

from django.db import transaction
from django.db.models.signals import m2m_changed
from django.dispatch import receiver

from approvals import team_coverage
from workspaces.models import Team, User

CHANGES = frozenset({"post_add", "post_remove", "post_clear"})


@receiver(m2m_changed, sender=User.groups.through, dispatch_uid="approvals.receivers")
def teams_changed(
    sender: object, action: str, instance: Any, pk_set: set[int] | None, **more: object
) -> None:
    """Somebody joined or left groups: look at the workspaces whose teams these are."""
    if action not in CHANGES:
        return
    groups = set(pk_set or ()) if isinstance(instance, User) else {instance.pk}
    found = Team.objects.filter(group__in=groups).values_list("workspace", flat=True)
    for workspace in set(found):
        transaction.on_commit(partial(team_coverage.look_at, workspace), robust=True)
