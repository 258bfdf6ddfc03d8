"""Keys by which people sign their yes."""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from workspaces.models import User, Workspace


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
