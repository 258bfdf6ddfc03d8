"""That the glass was broken for one approval, until somebody who took no part has looked at it."""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from approvals.models.approvals import Approval
from workspaces.models import Team, User, Workspace


class BrokenGlass(models.Model):
    """Begun by the first of two, opened by the second, and closed by a review. Who the two were
    are the decisions with `break_glass`.
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    approval = models.OneToOneField(Approval, on_delete=models.CASCADE, related_name="glass")
    team = models.ForeignKey(
        Team,
        on_delete=models.PROTECT,
        null=True,
        db_index=False,
        help_text="Of which both are; NULL: administrators",
    )
    begun_at = models.DateTimeField(db_default=Now())
    opened_at = models.DateTimeField(null=True, help_text="When the second had agreed")
    reviewed_at = models.DateTimeField(null=True)
    reviewed_by = models.ForeignKey(
        User, on_delete=models.PROTECT, null=True, related_name="+", db_index=False
    )
    review = models.TextField(blank=True)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(reviewed_at=None, reviewed_by=None, review="")
                | (Q(reviewed_at__isnull=False, reviewed_by__isnull=False) & ~Q(review="")),
                name="glass_reviewed_by_somebody",
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["workspace"], condition=Q(reviewed_at=None), name="glass_not_reviewed"
            ),
        ]

    def __str__(self) -> str:
        return f"broken for {self.approval}"
