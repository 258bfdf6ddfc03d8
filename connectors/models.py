"""Connections with the bounded log of their calls; channels that tell people, with messages."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from ledger.canonical import digest
from workspaces.models import Secret, Workspace


class ConnectionQuerySet(models.QuerySet["Connection"]):
    def in_workspace(self, workspace: Workspace) -> ConnectionQuerySet:
        """The workspace's connections by name, ready to be opened without further queries."""
        return (
            self.filter(workspace=workspace)
            .select_related("workspace", "observe_secret", "compensate_secret")
            .order_by("name")
        )


class Connection(models.Model):
    """One configured use of a connector; change it only through `connectors.connections`.

    The two secrets are written in the console and never read back there. Approvals hold
    `settings_digest`: whatever changes what a call would do changes it, a secret's rotation does
    not; whose accounts the secrets open they hold beside it (`accounts.py`).
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="connections")
    name = models.SlugField(max_length=80)
    connector = models.CharField(max_length=80)
    settings = models.JSONField(default=dict)
    sandbox_settings = models.JSONField(
        default=dict, blank=True, help_text="Settings that differ while rehearsing"
    )
    settings_digest = models.CharField(max_length=64)
    revision = models.PositiveIntegerField(default=1)
    observe_secret = models.ForeignKey(
        Secret, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    compensate_secret = models.ForeignKey(
        Secret, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    disabled_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    last_ok_at = models.DateTimeField(null=True, blank=True)
    last_error_at = models.DateTimeField(null=True, blank=True)
    last_error = models.CharField(max_length=400, blank=True)
    concurrency = models.PositiveSmallIntegerField(
        default=4, help_text="Calls over it at once; a slow system holds no more workers than that"
    )
    link = models.CharField(
        max_length=500,
        blank=True,
        default="",
        db_default="",
        help_text="Where people find a record in the system's own pages",
    )
    failures_in_a_row = models.PositiveIntegerField(default=0, editable=False)
    open_until = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="The circuit breaker lets nothing through"
    )

    objects = ConnectionQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["workspace", "name"], name="connection_name_in_workspace"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_disabled(self) -> bool:
        return self.disabled_at is not None

    @property
    def is_failing(self) -> bool:
        """Whether the last thing we know of it is an error."""
        if self.last_error_at is None:
            return False
        return self.last_ok_at is None or self.last_ok_at < self.last_error_at


def digest_of_settings(connector: str, settings: dict[str, Any]) -> str:
    """SHA-256 over the canonical JSON (RFC 8785) of what a call over this connection rests on."""
    return digest({"connector": connector, "settings": settings})


class ConnectionVersion(models.Model):
    """Settings that were changed, or that came instead; what a stopped step shows them by.

    Written by the change, both sides at once, without what `masking` and `redaction` take for a
    secret. A connection that was never changed has none.
    """

    connection = models.ForeignKey(Connection, on_delete=models.CASCADE, related_name="versions")
    settings_digest = models.CharField(max_length=64)
    settings = models.JSONField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["connection", "settings_digest"], name="connection_version_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.connection} {self.settings_digest[:12]}"


class CallOutcome(models.TextChoices):
    OK = "ok"
    APPLIED = "applied"
    NO_EFFECT = "no_effect"
    UNKNOWN = "unknown"
    FAILED = "failed"


class CallLog(models.Model):
    """One call, for the engineer who wonders. Not evidence: the ledger is that."""

    connection = models.ForeignKey(
        Connection, on_delete=models.CASCADE, related_name="calls", db_index=False
    )  # calllog_newest leads with it
    method = models.CharField(max_length=20)
    operation = models.CharField(max_length=80)
    target = models.CharField(max_length=200)
    at = models.DateTimeField(db_default=Now())
    milliseconds = models.PositiveIntegerField()
    outcome = models.CharField(max_length=12, choices=CallOutcome)
    detail = models.CharField(max_length=400, blank=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["connection", "-id"], name="calllog_newest"),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(outcome__in=CallOutcome.values), name="calllog_outcome"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.method} {self.operation}: {self.outcome}"


class ChannelKind(models.TextChoices):
    MAIL = "mail", "Mail"
    SLACK = "slack", "Slack-shaped webhook"
    WEBHOOK = "webhook", "Signed webhook"


class Tier(models.TextChoices):
    """How much of what happened may leave by a channel. Arguments never do, by any."""

    OUTLINE = "outline", "Outline: who asks, how risky, until when, and a link"
    IN_FULL = "headline", "Headline: also what would happen, with amount and reason"


class Channel(models.Model):
    """Where messages go. Mail: settings {"to": [...]}; the others: {"url": …} is the secret."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="channels")
    name = models.SlugField(max_length=80)
    kind = models.CharField(max_length=10, choices=ChannelKind)
    settings = models.JSONField(default=dict, blank=True)
    secret = models.ForeignKey(
        Secret, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    subjects = models.JSONField(
        default=list, blank=True, help_text="Glob patterns of the subjects it carries; empty: all"
    )
    tier = models.CharField(max_length=8, choices=Tier, default=Tier.OUTLINE)
    created_at = models.DateTimeField(auto_now_add=True)
    disabled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["workspace", "name"], name="channel_name_in_workspace"),
            models.CheckConstraint(condition=Q(tier__in=Tier.values), name="channel_tier"),
            models.CheckConstraint(condition=Q(kind__in=ChannelKind.values), name="channel_kind"),
        ]

    def __str__(self) -> str:
        return self.name


class Feed(models.Model):
    """How much of the log a channel's receiver has taken: all entries below `number` of `origin`.

    `due_at` is when it goes on; whoever sends moves it ahead first, so that nobody else does.
    """

    channel = models.OneToOneField(Channel, on_delete=models.CASCADE, related_name="feed")
    origin = models.CharField(max_length=200, blank=True)
    number = models.BigIntegerField(default=0)
    due_at = models.DateTimeField(db_default=Now())
    failures = models.PositiveIntegerField(default=0)
    error = models.CharField(max_length=400, blank=True)

    def __str__(self) -> str:
        return f"{self.channel}: {self.number}"


class DeliveryState(models.TextChoices):
    WAITING = "waiting"
    SENT = "sent"
    FAILED = "failed"


class Delivery(models.Model):
    """One message for one channel or one recipient, until it is sent or given up.

    `subject` is what it is about ("approval.requested", "correction.published"), `key` makes asking
    for the same message twice one message. It is written in the transaction of what it tells
    of.
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="deliveries")
    channel = models.ForeignKey(
        Channel, on_delete=models.SET_NULL, null=True, blank=True, related_name="deliveries"
    )
    kind = models.CharField(max_length=10, choices=ChannelKind)
    recipient = models.CharField(max_length=320, blank=True, help_text="Mail to one person")
    subject = models.CharField(max_length=80)
    key = models.CharField(max_length=120)
    message = models.JSONField(default=dict)
    state = models.CharField(max_length=10, choices=DeliveryState, default=DeliveryState.WAITING)
    tries = models.PositiveSmallIntegerField(default=0)
    next_try_at = models.DateTimeField(db_default=Now())
    created_at = models.DateTimeField(auto_now_add=True)
    sent_at = models.DateTimeField(null=True, blank=True)
    last_error = models.CharField(max_length=400, blank=True)

    class Meta:
        verbose_name_plural = "deliveries"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["workspace", "key"], name="delivery_once_in_workspace"),
            models.CheckConstraint(
                condition=Q(state__in=DeliveryState.values), name="delivery_state"
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["next_try_at"], name="delivery_due", condition=Q(state="waiting")),
            models.Index(
                fields=["next_try_at"], name="delivery_failed", condition=Q(state="failed")
            ),
            models.Index(fields=["workspace", "-id"], name="delivery_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.subject} by {self.kind}: {self.state}"
