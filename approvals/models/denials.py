"""Calls that a rule denied at the gate: they are no actions, so dry runs look for them here."""

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from workspaces.models import Agent, Workspace


class Denial(models.Model):
    """One call of one key in one run, with what the policy judged, and how often it came."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE)
    key = models.CharField(max_length=200)
    run_ref = models.CharField(max_length=120, help_text="Run id of the call")
    deed = models.JSONField(default=dict, help_text="What was judged, masked as in the ledger")
    times = models.PositiveIntegerField(default=1, db_default=1, help_text="How often it came")
    denied_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["agent", "key", "run_ref"], name="denied_once_per_key_and_run"
            )
        ]
        indexes: ClassVar = [
            models.Index(fields=["workspace", "-id"], name="denial_newest_first"),
            models.Index(fields=["workspace", "run_ref"], name="denial_of_run"),
        ]

    def __str__(self) -> str:
        return f"{self.deed.get('tool', '')} in {self.run_ref}"
