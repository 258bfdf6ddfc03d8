"""Acts: what people did below the ledger's floor, waiting to be written into it."""

from typing import ClassVar

from django.db import models

from workspaces.models.people import User
from workspaces.models.workspace import Workspace


class Act(models.Model):
    """A person's act (`key.created`, `member.added` …) on its way to the ledger.

    Floors below the ledger may not call it, and a bell could be missed; so the act is a row written
    in the transaction of the deed, and the ledger takes it in (`ledger.acts.take_in`).
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE)
    type = models.CharField(max_length=60)
    person = models.ForeignKey(User, on_delete=models.SET_NULL, null=True)
    data = models.JSONField(default=dict)
    at = models.DateTimeField(auto_now_add=True)
    taken_in_at = models.DateTimeField(null=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(
                fields=["id"], name="act_not_taken_in", condition=models.Q(taken_in_at__isnull=True)
            )
        ]

    def __str__(self) -> str:
        return self.type


class Heartbeat(models.Model):
    """When a loop last went round, so that `/statusz` and the alerts notice one that stopped."""

    name = models.CharField(max_length=60, primary_key=True)
    beat_at = models.DateTimeField()
    every_seconds = models.FloatField()
    last_error = models.TextField(blank=True)
    failing_since = models.DateTimeField(null=True)
    told_at = models.DateTimeField(null=True, help_text="When people were told that it stopped")

    def __str__(self) -> str:
        return self.name
