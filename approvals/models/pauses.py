"""Pauses: what is stopped, by whom and why."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from workspaces.models import User, Workspace


class PauseKind(models.TextChoices):
    WORKSPACE = "workspace"
    AGENT = "agent"
    TOOL = "tool"
    CONNECTION = "connection"
    RUN = "run"


class Pause(models.Model):
    """While one stands, `begin` is denied and nothing is claimed for what it names."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="pauses")
    kind = models.CharField(max_length=10, choices=PauseKind.choices)
    name = models.CharField(
        max_length=200, blank=True, help_text="Agent, tool glob, connection or run"
    )
    reason = models.CharField(max_length=400)
    paused_by = models.ForeignKey(
        User,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        help_text="NULL: the desk itself, until an administrator has looked",
    )
    paused_at = models.DateTimeField(auto_now_add=True)
    lifted_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")
    lifted_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["workspace", "kind", "name"],
                condition=Q(lifted_at__isnull=True),
                name="one_standing_pause",
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()
