"""Bulk jobs on ids frozen at the dry run, and saved views of the queue."""

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from ledger.models import Checkpoint, Run
from recovery.models.cases import Case
from workspaces.models import User, Workspace

# Directives: what the desk wants of a run. The desk never runs forward actions itself.


class Directive(models.Model):
    """Stop, or resume from a checkpoint with these steps skipped and repeated."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="directives")
    kind = models.CharField(max_length=6, choices=[("stop", "stop"), ("resume", "resume")])
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, null=True)
    steps = models.JSONField(default=list, help_text="[{action, tool, label, key}]")
    issued_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True)
    issued_at = models.DateTimeField(
        db_default=Now(), help_text="By the database's clock: answers are held against it"
    )
    acknowledge_by = models.DateTimeField(null=True)
    acknowledged_at = models.DateTimeField(null=True)
    withdrawn_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["run"],
                condition=Q(acknowledged_at__isnull=True, withdrawn_at__isnull=True),
                name="one_standing_directive",
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.run_id}"


# Corrections: what one affected person is told about one case.


class CorrectionState(models.TextChoices):
    DRAFT = "draft"
    PUBLISHED = "published"
    REVOKED = "revoked"


class Correction(models.Model):
    """Facts drafted from the ledger by templates; the wording may be edited, the facts may not.

    The public link is `/c/<token>/`; only the token's digest is kept beside a sealed copy for
    operators, so that a dump opens nobody's page.
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    case = models.ForeignKey(Case, on_delete=models.CASCADE, related_name="corrections")
    reference = models.CharField(max_length=20, unique=True, help_text="AM-2F7K-09")
    person_id = models.CharField(max_length=120)
    person_name = models.CharField(max_length=200, blank=True)
    contact = models.CharField(max_length=320, blank=True)
    state = models.CharField(
        max_length=9, choices=CorrectionState.choices, default=CorrectionState.DRAFT
    )
    revision = models.PositiveIntegerField(default=1)
    facts = models.JSONField(
        help_text="changed, why, restored, unchanged, not_undone, reviewed, record"
    )
    facts_salt = models.BinaryField(
        null=True, help_text="32 random bytes; the published event holds the digest over both"
    )
    title = models.CharField(max_length=300)
    lead = models.TextField(blank=True)
    wording = models.JSONField(default=dict, help_text="Edited sentences by fact id")
    drafted_at = models.DateTimeField(auto_now_add=True)
    published_at = models.DateTimeField(null=True)
    published_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")
    event_id = models.CharField(max_length=64, blank=True, help_text="correction.published")
    token_digest = models.CharField(max_length=64, blank=True, db_index=True)
    token_sealed = models.BinaryField(null=True)
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    first_read_at = models.DateTimeField(null=True)
    read_count = models.PositiveIntegerField(default=0)
    still_wrong_at = models.DateTimeField(null=True)
    still_wrong_text = models.TextField(blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["case", "person_id"],
                condition=models.Q(state="draft"),
                name="one_draft_per_person",
            )
        ]
        indexes: ClassVar = [
            models.Index(fields=["workspace", "-id"], name="correction_newest_first"),
            models.Index(
                fields=["workspace", "-id"],
                condition=models.Q(still_wrong_at__isnull=False),
                name="correction_still_wrong",
            ),
        ]

    def __str__(self) -> str:
        return self.reference


class ContestGround(models.TextChoices):
    """What the affected person says is wrong."""

    NOT_RESTORED = "not_restored", _("It is not as this page says")
    NOT_ASKED = "not_asked", _("I did not ask for this")
    MINE_IS_WRONG = "mine_is_wrong", _("What is said of me or of what is mine is wrong")
    ANOTHER_WAY = "another_way", _("I want it put right in another way")
    OTHER = "other", _("Something else")


class Contest(models.Model):
    """The affected person says that a correction is wrong. Somebody who did not decide answers."""

    correction = models.ForeignKey(Correction, on_delete=models.CASCADE, related_name="contests")
    receipt = models.CharField(max_length=20, unique=True, help_text="CT-2F7K-09QX")
    ground = models.CharField(max_length=14, choices=ContestGround.choices)
    text = models.TextField()
    at = models.DateTimeField()
    due_at = models.DateTimeField(help_text="Until when it is answered")
    answered_at = models.DateTimeField(null=True)
    answered_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")
    upheld = models.BooleanField(null=True, help_text="Whether the person was right")
    answer = models.TextField(blank=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(
                fields=["due_at", "id"],
                condition=models.Q(answered_at=None),
                name="contest_unanswered",
            )
        ]

    def __str__(self) -> str:
        return self.receipt


class CorrectionSettings(models.Model):
    """What a workspace says of its corrections: words of its own, and what is no news."""

    workspace = models.OneToOneField(Workspace, on_delete=models.CASCADE, primary_key=True)
    sentences = models.JSONField(default=dict, help_text="{language: {name: sentence}}")
    internal = ArrayField(
        models.CharField(max_length=120),
        default=list,
        help_text="Globs of kinds of targets that no person is told of: counters, sessions",
    )
    valid_days = models.PositiveSmallIntegerField(default=180, help_text="Of a new link")
    answer_days = models.PositiveSmallIntegerField(default=14, help_text="To a contest")

    def __str__(self) -> str:
        return f"corrections of {self.workspace_id}"


class CorrectionDelivery(models.Model):
    """That and how the person was told: mail, webhook, or a link copied by an operator."""

    correction = models.ForeignKey(Correction, on_delete=models.CASCADE, related_name="deliveries")
    channel = models.CharField(max_length=10)
    address = models.CharField(max_length=320, blank=True)
    message_key = models.CharField(
        max_length=120, blank=True, help_text="Of the message that connectors.channels sends"
    )
    state = models.CharField(max_length=10, default="waiting")
    tries = models.PositiveSmallIntegerField(default=0)
    next_try_at = models.DateTimeField(null=True)
    sent_at = models.DateTimeField(null=True)
    last_error = models.TextField(blank=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(
                fields=["id"], condition=models.Q(state="waiting"), name="correction_on_its_way"
            )
        ]

    def __str__(self) -> str:
        return f"{self.channel} {self.state}"


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
    state = models.CharField(max_length=12, default=BulkItemState.WAITING)
    detail = models.CharField(max_length=400, blank=True)
    taken_at = models.DateTimeField(null=True, help_text="When somebody began to work on it")
    plan_id = models.BigIntegerField(null=True)

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
