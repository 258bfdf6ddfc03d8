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
    shadow_since = models.DateTimeField(
        null=True, help_text="Since when it is judged beside the active one, without a say"
    )
    unmet = models.JSONField(
        default=list, help_text="What it asks and nobody can meet, as last looked at"
    )
    looked_at = models.DateTimeField(null=True, help_text="When `unmet` was last looked at")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["workspace", "number"], name="policy_number"),
            models.UniqueConstraint(
                fields=["workspace"], condition=Q(active=True), name="one_active_policy"
            ),
            models.UniqueConstraint(
                fields=["workspace"],
                condition=Q(shadow_since__isnull=False),
                name="one_shadow_policy",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["looked_at"], condition=Q(active=True), name="policy_looked_at")
        ]

    def __str__(self) -> str:
        return f"policy {self.number}"
