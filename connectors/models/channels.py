"""Channels that people are told by, and each message on its way."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from workspaces.models import Secret, Workspace


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


class DeliveryState(models.TextChoices):
    WAITING = "waiting"
    SENT = "sent"
    FAILED = "failed"


class Delivery(models.Model):
    """One message for one channel or one recipient, until it is sent or given up.

    `subject` is what it is about ("approval.requested", "correction.published"), `key` makes asking
    for the same message twice one message. It is written in the transaction of the deed it tells
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
            models.Index(fields=["workspace", "-id"], name="delivery_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.subject} by {self.kind}: {self.state}"
