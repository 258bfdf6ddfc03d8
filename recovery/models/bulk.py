"""Acts on many cases: jobs on ids frozen at the dry run; and saved views of the queue."""

from typing import ClassVar

from django.db import models

from recovery.models.cases import Case
from workspaces.models import User, Workspace

RESUME_FROM_MAX = 320


class BulkJob(models.Model):
    """One act on many cases; each case keeps its own plan and approval."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE)
    verb = models.CharField(max_length=12)
    ending = models.CharField(
        max_length=16, blank=True, default="", help_text="As what cases are closed"
    )
    resume_from = models.CharField(
        max_length=RESUME_FROM_MAX,
        blank=True,
        default="",
        help_text="Where runs go on: empty for the last checkpoint of each, start, named:<name>",
    )
    query = models.CharField(max_length=1000)
    reason = models.TextField(blank=True)
    started_by = models.ForeignKey(User, on_delete=models.PROTECT)
    started_at = models.DateTimeField(auto_now_add=True)
    stopped_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.verb} {self.query}"


class BulkItemState(models.TextChoices):
    WAITING = "waiting"
    WORKING = "working"
    DONE = "done"
    REFUSED = "refused"
    STOPPED = "stopped"


BULK_ITEM_TO_DO = [BulkItemState.WAITING, BulkItemState.WORKING]


class BulkItem(models.Model):
    job = models.ForeignKey(BulkJob, on_delete=models.CASCADE, related_name="items")
    case = models.ForeignKey(Case, on_delete=models.CASCADE)
    revision = models.BigIntegerField()
    digest = models.CharField(max_length=64, blank=True, help_text="Of the plan that was previewed")
    restores = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="Digest of what that plan restores; empty of a dry run by an older version",
    )
    state = models.CharField(max_length=12, default=BulkItemState.WAITING)
    detail = models.CharField(max_length=400, blank=True)
    taken_at = models.DateTimeField(null=True, help_text="When somebody began to work on it")
    plan_id = models.BigIntegerField(null=True)

    was_lost = False
    """Of one in hand: whether somebody had it before, and was lost with it."""

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["job", "case"], name="case_once_in_job")
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["id"],
                condition=models.Q(state__in=BULK_ITEM_TO_DO),
                name="bulk_item_to_do",
            )
        ]

    def __str__(self) -> str:
        return f"{self.case_id}: {self.state}"


class SavedView(models.Model):
    """A query with a name, kept on the server, private or shared."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE)
    slug = models.SlugField(max_length=60)
    name = models.CharField(max_length=80)
    query = models.CharField(max_length=1000)
    owner = models.ForeignKey(User, on_delete=models.CASCADE)
    shared = models.BooleanField(default=False)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["workspace", "slug"], name="view_slug_in_workspace")
        ]

    def __str__(self) -> str:
        return self.name
