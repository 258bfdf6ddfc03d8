"""What the affected person was asked before the people who decide, and what they answered."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from approvals.models.approvals import Approval


class WishAnswer(models.TextChoices):
    OPEN = "", "has not answered"
    YES = "yes", "wants it"
    NO = "no", "does not want it"


class Wish(models.Model):
    """One affected person's wish: evidence for those who decide. It starts nothing by itself.

    The link is known by its digest; the sealed copy is for operators who pass it on by hand.
    """

    approval = models.ForeignKey(Approval, on_delete=models.CASCADE, related_name="wishes")
    person_ref = models.CharField(max_length=120, help_text="Their id, as the agent named them")
    name = models.CharField(max_length=200, blank=True)
    contact = models.CharField(max_length=320, blank=True)
    question = models.TextField()
    token_digest = models.CharField(max_length=64, unique=True)
    token_sealed = models.BinaryField()
    asked_at = models.DateTimeField(auto_now_add=True)
    answer = models.CharField(max_length=3, blank=True, choices=WishAnswer, default=WishAnswer.OPEN)
    note = models.TextField(blank=True, help_text="In their own words")
    answered_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "wishes"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["approval", "person_ref"], name="asked_once_each"),
            models.CheckConstraint(
                condition=Q(answer="", answered_at__isnull=True)
                | Q(answer__in=["yes", "no"], answered_at__isnull=False),
                name="wish_answered_at_a_time",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name or self.person_ref} {self.get_answer_display()}"
