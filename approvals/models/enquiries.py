"""Questions that people ask back before they decide, and their answers."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from approvals.models.approvals import Approval
from workspaces.models import User


class Enquiry(models.Model):
    """One question to whoever asked for the approval. Its answer is read, and decides nothing."""

    approval = models.ForeignKey(Approval, on_delete=models.CASCADE, related_name="enquiries")
    asked_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    question = models.TextField()
    asked_at = models.DateTimeField(auto_now_add=True)
    answer = models.TextField(blank=True)
    answered_by = models.ForeignKey(
        User, on_delete=models.PROTECT, null=True, related_name="+", help_text="NULL: the agent"
    )
    answered_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "enquiries"
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(answered_at__isnull=False) | Q(answer="", answered_by__isnull=True),
                name="enquiry_answered_at_a_time",
            )
        ]

    def __str__(self) -> str:
        return self.question
