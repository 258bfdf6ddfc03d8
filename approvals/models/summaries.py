"""Who wants a mail a day of what waits for them."""

from typing import ClassVar

from django.db import models

from workspaces.models import User, Workspace


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
