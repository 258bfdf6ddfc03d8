"""The registry of what was forgotten: whose payloads were erased, and what retention let go."""

from typing import ClassVar

from django.db import models

from workspaces.models import User, Workspace


class ErasureState(models.TextChoices):
    WAITING = "waiting", "Going on"
    DONE = "done"
    REFUSED = "refused", "Stopped: somebody works on the rest"


class Erasure(models.Model):
    """One erasure. Of the person only a salted digest is kept: who asks again can be recognised.

    While it goes on, part by part, the row also says whom and which runs it is about.
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="erasures")
    person_digest = models.BinaryField(max_length=32, null=True)
    salt = models.BinaryField(max_length=32)
    reason = models.TextField(blank=True)
    by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    at = models.DateTimeField(auto_now_add=True)
    state = models.CharField(max_length=8, choices=ErasureState.choices, default=ErasureState.DONE)
    person = models.CharField(max_length=120, blank=True, help_text="Empty once it is over")
    named = models.JSONField(default=list, help_text="Runs asked for by name that are left")
    total = models.PositiveIntegerField(default=0, help_text="Runs that were meant at first")
    detail = models.CharField(max_length=4000, blank=True, help_text="The runs that stopped it")
    run_count = models.PositiveIntegerField(default=0)
    event_count = models.PositiveIntegerField(default=0)
    rows = models.JSONField(default=dict, help_text="How many rows of each table were replaced")

    def __str__(self) -> str:
        return f"erasure {self.pk}"


class Thinning(models.Model):
    """One partition's events of one workspace, let go after their time, but for some."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="thinnings")
    partition = models.CharField(max_length=60)
    let_go = models.BigIntegerField()
    kept = models.BigIntegerField(help_text="Of runs that somebody still works with")
    last_place = models.BigIntegerField(help_text="The last place that was let go")
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["workspace", "-id"], name="thinning_newest")]

    def __str__(self) -> str:
        return f"{self.partition}: {self.let_go}"
