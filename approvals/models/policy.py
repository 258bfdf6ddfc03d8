"""The policy document of a workspace, by version."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from workspaces.models import User, Workspace


class PolicyVersion(models.Model):
    """One saved document, named by its digest; exactly one is active in a workspace."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="policies")
    number = models.PositiveIntegerField()
    document = models.JSONField()
    source = models.TextField(blank=True, help_text="As it was written, JSON or YAML")
    digest = models.CharField(max_length=64)
    author = models.ForeignKey(User, on_delete=models.SET_NULL, null=True)
    note = models.CharField(max_length=400, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    activated_at = models.DateTimeField(null=True)
    active = models.BooleanField(default=False)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["workspace", "number"], name="policy_number"),
            models.UniqueConstraint(
                fields=["workspace"], condition=Q(active=True), name="one_active_policy"
            ),
        ]

    def __str__(self) -> str:
        return f"policy {self.number}"
