"""What conditions of the policy remember: sums and counts, what they are held for, values seen.

Nothing here holds words of anybody: subjects and values are digests.
"""

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from workspaces.models import Agent, Workspace

DIGEST_CHARACTERS = 32  # 128 bits of SHA-256, in hex


class Tally(models.Model):
    """One sum or count for one subject, in buckets of a forty-eighth of its window.

    Whoever reads it in order to reserve holds its row, so of two calls one sees the other.
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    meter = models.CharField(max_length=DIGEST_CHARACTERS, help_text="Which question of which rule")
    subject = models.CharField(max_length=DIGEST_CHARACTERS, help_text="For whom or what")
    buckets = models.JSONField(default=dict, help_text="Number of the bucket: amount")
    since = models.DateTimeField(db_default=Now())
    touched_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["workspace", "meter", "subject"], name="one_tally")
        ]
        indexes: ClassVar = [models.Index(fields=["touched_at"], name="tally_by_age")]

    def __str__(self) -> str:
        return f"{self.meter} of {self.subject}"


class Reservation(models.Model):
    """What one call holds of a tally, until its outcome is known; `held` once it may be made.

    A call that people were asked about holds what it says as soon as it is granted.
    """

    tally = models.ForeignKey(Tally, on_delete=models.CASCADE, db_index=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    key = models.CharField(max_length=200)
    run_ref = models.CharField(max_length=120)
    action = models.CharField(max_length=120)
    bucket = models.BigIntegerField()
    amount = models.DecimalField(max_digits=40, decimal_places=10)
    held = models.BooleanField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tally", "agent", "key"], name="reserved_once")
        ]
        indexes: ClassVar = [models.Index(fields=["at"], name="reservation_by_age")]

    def __str__(self) -> str:
        return f"{self.amount} by {self.key}"


class Sighting(models.Model):
    """A value that a call was begun with, so that it can be said whether it is known."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    field = models.CharField(max_length=DIGEST_CHARACTERS, help_text="What the rule asks about")
    value = models.CharField(max_length=DIGEST_CHARACTERS)
    shape = models.CharField(max_length=DIGEST_CHARACTERS, help_text="Of its skeleton: look-alikes")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    person = models.CharField(max_length=DIGEST_CHARACTERS, blank=True)
    run_ref = models.CharField(max_length=120)
    action = models.CharField(max_length=120)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["workspace", "field", "value", "-id"], name="sighting_of_value"),
            models.Index(fields=["workspace", "field", "shape", "-id"], name="sighting_of_shape"),
            models.Index(fields=["at"], name="sighting_by_age"),
        ]

    def __str__(self) -> str:
        return f"{self.field} {self.value}"
