"""Directives: what the desk wants of a run. The desk never runs forward actions itself."""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from ledger.models import Checkpoint, Run
from workspaces.models import User


class Directive(models.Model):
    """Stop, or resume from a checkpoint with these steps skipped and repeated."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="directives")
    kind = models.CharField(max_length=6, choices=[("stop", "stop"), ("resume", "resume")])
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, null=True)
    steps = models.JSONField(default=list, help_text="[{action, tool, label, key}]")
    issued_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True)
    issued_at = models.DateTimeField(
        db_default=Now(), help_text="By the database's clock: answers are held against it"
    )
    acknowledge_by = models.DateTimeField(null=True)
    acknowledged_at = models.DateTimeField(null=True)
    withdrawn_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["run"],
                condition=Q(acknowledged_at__isnull=True, withdrawn_at__isnull=True),
                name="one_standing_directive",
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.run_id}"
