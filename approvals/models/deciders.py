"""Of people who decide: keys by which they sign, glasses that they broke, and wishes for a mail."""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from approvals.models.approvals import Approval
from workspaces.models import Team, User, Workspace


class SigningKey(models.Model):
    """Where to find the enrolment of a person's key. What counts is the event, in the log."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    person = models.ForeignKey(
        User, on_delete=models.CASCADE, related_name="signing_keys", db_index=False
    )
    credential = models.CharField(max_length=1400, help_text="Its id, base64url")
    label = models.CharField(max_length=200)
    event = models.CharField(max_length=64, help_text="Id of the enrolment in the ledger")
    sign_count = models.BigIntegerField(default=0, help_text="The highest that it has said")
    enrolled_at = models.DateTimeField(db_default=Now())
    removed_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["workspace", "person", "credential"],
                condition=Q(removed_at__isnull=True),
                name="signing_key_once",
            )
        ]

    def __str__(self) -> str:
        return self.label


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


class DailySummary(models.Model):
    """One person's wish in one workspace; without a row there is none."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    person = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    hour = models.PositiveSmallIntegerField(help_text="Of the person's day, 0 to 23")
    written_for = models.DateField(help_text="The last day, begun at that hour, that is dealt with")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["workspace", "person"], name="one_daily_summary"),
            models.CheckConstraint(condition=models.Q(hour__lte=23), name="hour_of_a_day"),
        ]

    def __str__(self) -> str:
        return f"{self.person} at {self.hour:02}:00"
