"""Effects: what an action did to one target."""

from typing import Any, ClassVar

from django.db import models

from ledger.models.actions import Action, Compensated
from workspaces.models import Workspace


class Reversibility(models.TextChoices):
    EXACT = "exact"
    COMPENSABLE = "compensable"
    IRREVERSIBLE = "irreversible"
    UNKNOWN = "unknown"


class SnapshotSource(models.TextChoices):
    """Only observed snapshots, or those of a trusted runtime, are restored without a person."""

    OBSERVED = "observed"
    REPORTED = "reported"


class Effect(models.Model):
    """What an action did to one target.

    `before` is what the desk observed, else what action.planned said, else what the completion
    said. A snapshot may be `{"ref": "sha256:…"}`, which names a blob.
    """

    workspace = models.ForeignKey(
        Workspace, on_delete=models.CASCADE, db_index=False, db_constraint=False
    )
    action = models.ForeignKey(
        Action,
        on_delete=models.CASCADE,
        related_name="effects",
        db_index=False,
        db_constraint=False,
    )  # effect_in_action leads with it
    position = models.PositiveSmallIntegerField(
        help_text="Within one action the last is undone first"
    )
    target_type = models.CharField(max_length=120)
    target_id = models.CharField(max_length=400)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    has_before = models.BooleanField(
        default=False, help_text="null may be said, or not said at all"
    )
    has_after = models.BooleanField(default=False)
    source = models.CharField(
        max_length=8, choices=SnapshotSource.choices, default=SnapshotSource.REPORTED
    )
    summary = models.CharField(max_length=400, blank=True)
    reversibility = models.CharField(
        max_length=12, choices=Reversibility.choices, default=Reversibility.UNKNOWN
    )
    undo_until = models.DateTimeField(null=True)
    affects = models.JSONField(null=True, help_text="{id, name, contact?}; default on_behalf_of")
    compensated = models.CharField(
        max_length=12, choices=Compensated.choices, default=Compensated.NONE
    )
    withdrawn = models.BooleanField(
        default=False, help_text="Later events no longer tell of it; kept for those who point here"
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["action", "position"], name="effect_in_action")
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["workspace", "target_type", "target_id", "-id"], name="effect_by_target"
            )
        ]

    def __str__(self) -> str:
        return f"{self.target_type} {self.target_id}"

    @property
    def person(self) -> dict[str, Any] | None:
        """Whom it affects: the person named with it, else the one on whose behalf the run acted."""
        found: dict[str, Any] | None = self.affects or self.action.run.on_behalf_of
        return found
