"""What is worth a second look: calls that asked nobody and are unlike what their agent did."""

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from workspaces.models import Workspace


class Review(models.Model):
    """One call that ran unasked, and by which rule it is worth a look."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    run_ref = models.CharField(max_length=120)
    action = models.CharField(max_length=120)
    glob = models.CharField(max_length=200)
    words = models.CharField(max_length=400, help_text="The rule's own; they name no value")
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["workspace", "run_ref", "action", "words"], name="looked_at_once"
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["workspace", "at"], name="review_by_age")]

    def __str__(self) -> str:
        return self.words
