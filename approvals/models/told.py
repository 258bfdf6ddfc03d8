"""Who was told of an approval, when, and by which channel."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from approvals.models.approvals import Approval
from connectors.models import Delivery
from workspaces.models import User


class About(models.TextChoices):
    """What somebody was told."""

    ASKED = "requested", "that it waits"
    REMINDED = "reminded", "that half of the time is over"
    QUESTIONED = "questioned", "that a decider has a question"
    ANSWERED = "answered", "that a question is answered"
    WISH = "affected", "what they want, as the affected person"
    HEARD = "heard", "what the affected person wants"
    ENDED = "ended", "how it ended"


class Told(models.Model):
    """One message about an approval. Its way and its tries are the delivery's."""

    approval = models.ForeignKey(Approval, on_delete=models.CASCADE, related_name="told")
    about = models.CharField(max_length=10, choices=About)
    person = models.ForeignKey(
        User,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        help_text="NULL: a channel, or the affected person",
    )
    to = models.CharField(max_length=320, help_text="The channel's name, or the person's address")
    delivery = models.ForeignKey(
        Delivery, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False
    )
    at = models.DateTimeField(auto_now_add=True)
    noted_at = models.DateTimeField(null=True, help_text="When the ledger was told what became")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["delivery"], name="told_once_by_a_message"),
            models.CheckConstraint(condition=Q(about__in=About.values), name="told_about"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["id"], name="told_not_noted", condition=Q(noted_at=None)),
        ]

    def __str__(self) -> str:
        return f"{self.to}, {self.get_about_display()}"
