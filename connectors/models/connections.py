"""Connections, and the bounded log of the calls made over them."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from connectors.canonical import digest
from workspaces.models import Secret, Workspace


class ConnectionQuerySet(models.QuerySet["Connection"]):
    def in_workspace(self, workspace: Workspace) -> ConnectionQuerySet:
        """The workspace's connections by name, ready to be opened without further queries."""
        return (
            self.filter(workspace=workspace)
            .select_related("observe_secret", "compensate_secret")
            .order_by("name")
        )


class Connection(models.Model):
    """One configured use of a connector; change it only through `connectors.connections`.

    The two secrets are written in the console and never read back there. Approvals hold
    `settings_digest`: whatever changes what a call would do changes it, a secret's rotation does
    not.
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
