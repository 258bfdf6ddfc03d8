"""Corrections: what one affected person is told about one case, and what they answer."""

from collections.abc import Sequence
from typing import ClassVar, Self

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Exists, OuterRef
from django.utils.translation import gettext_lazy as _

from amends.protocol.masking import masked
from recovery.models.cases import Case
from recovery.models.plans import Plan, PlanState
from workspaces.erasure_registry import ERASED
from workspaces.models import User, Workspace


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
    language = models.CharField(
        max_length=5, blank=True, default="", db_default="", help_text="Theirs, where it is known"
    )
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
    # Not that somebody read it: a program that looks at links opens it as well.
    first_read_at = models.DateTimeField(null=True)
    read_count = models.PositiveIntegerField(default=0)
    still_wrong_at = models.DateTimeField(null=True)
    # Written by earlier versions: what the person says stands in their `Contest`.
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

    @property
    def is_erased(self) -> bool:
        """Whether its person was erased, and with them what it said."""
        return bool(self.facts.get("why") == ERASED)


class ContestGround(models.TextChoices):
    """What the affected person says is wrong."""

    NOT_RESTORED = "not_restored", _("It is not as this page says")
    NOT_ASKED = "not_asked", _("I did not ask for this")
    MINE_IS_WRONG = "mine_is_wrong", _("What is said of me or of what is mine is wrong")
    ANOTHER_WAY = "another_way", _("I want it put right in another way")
    OTHER = "other", _("Something else")


class ContestQuerySet(models.QuerySet["Contest"]):
    def waiting(self) -> Self:
        """Those whose person waits for an answer; where they were erased nobody does."""
        return self.filter(answered_at=None).exclude(correction__token_digest="")

    def upheld(self, run_ids: Sequence[int]) -> dict[tuple[int, str], bool]:
        """By run and report, whether the person was right who contests it, and nothing was done
        about it since: of answered ones.
        """
        found: dict[tuple[int, str], bool] = {}
        waiting = set()
        since = Plan.objects.filter(
            case=OuterRef("correction__case"),
            state=PlanState.FINISHED,
            submitted_at__gt=OuterRef("answered_at"),
        )
        contests = self.filter(correction__case__run__in=run_ids).select_related("correction__case")
        put_right = set(contests.filter(Exists(since)).values_list("pk", flat=True))
        for one in contests.order_by("pk"):
            case = one.correction.case
            key = (case.run_id, one.reported)
            if one.answered_at is None:
                waiting.add(key)
                continue
            was_closed = case.reopened_at is not None and case.reopened_at > one.answered_at
            is_open = bool(one.upheld) and not was_closed and one.pk not in put_right
            found[key] = found.get(key, False) or is_open
        return {key: upheld for key, upheld in found.items() if key not in waiting}


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
    reminded_at = models.DateTimeField(
        null=True, help_text="When those who may answer were told that it is due"
    )

    objects = ContestQuerySet.as_manager()

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

    @property
    def reported(self) -> str:
        """Its words as the report of its case has them: without secrets."""
        return str(masked(self.text))


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
    """That and how the person was told: mail, webhook, a link copied by an operator, or by
    somebody who says that they handed it on."""

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
