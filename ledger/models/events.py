"""Events: immutable statements, partitioned by the ledger's own receipt time.

The table itself is made by hand in the first migration (`PARTITION BY RANGE (received_at)`,
weekly), as are the triggers that refuse DELETE, TRUNCATE and every UPDATE but the owner's erasure.
Other tables refer to an event by its plain `place`, for no foreign key can point into a composite
key.
"""

from typing import ClassVar, NoReturn

from django.contrib.postgres.indexes import BrinIndex
from django.db import models

from workspaces.models import Workspace

EVENT_ID_CHARACTERS_MAX = 64
RUN_ID_CHARACTERS_MAX = 120
ACTION_ID_CHARACTERS_MAX = 120


class AppendOnly(Exception):
    """We stopped because the ledger only grows: write a new event that corrects the old one."""


class EventQuerySet(models.QuerySet["Event"]):
    def update(self, **_: object) -> NoReturn:
        raise AppendOnly("events are never changed")

    def delete(self) -> NoReturn:
        raise AppendOnly("events are never deleted")

    def bulk_update(self, *_: object, **__: object) -> NoReturn:
        raise AppendOnly("events are never changed")


class ActorKind(models.TextChoices):
    AGENT = "agent"
    PERSON = "person"
    DESK = "desk"


class Event(models.Model):
    """One statement. `time` is the agent's clock and only shown; `place` is the ledger's order."""

    pk = models.CompositePrimaryKey("place", "received_at")
    place = models.BigIntegerField(help_text="From the sequence ledger_place")
    received_at = models.DateTimeField()
    workspace = models.ForeignKey(
        Workspace, on_delete=models.PROTECT, db_index=False, db_constraint=False
    )
    event_id = models.CharField(max_length=EVENT_ID_CHARACTERS_MAX)
    type = models.CharField(max_length=40)
    time = models.DateTimeField(null=True)
    run = models.CharField(max_length=RUN_ID_CHARACTERS_MAX, blank=True)
    action = models.CharField(max_length=ACTION_ID_CHARACTERS_MAX, blank=True)
    n = models.IntegerField(null=True)
    trace = models.JSONField(null=True)
    actor_kind = models.CharField(max_length=8, choices=ActorKind.choices)
    actor = models.CharField(
        max_length=120, help_text="Agent's name, person's id, or the part of the desk"
    )
    key_prefix = models.CharField(max_length=12, blank=True)
    trusted = models.BooleanField(default=False, help_text="From a key marked as trusted runtime")
    data = models.JSONField(null=True, help_text="The masked payload; NULL once erased")
    salt = models.BinaryField(null=True, help_text="32 random bytes; NULL once erased")
    digest = models.BinaryField(help_text="SHA-256 of salt and canonical JSON of the masked event")

    objects = EventQuerySet.as_manager()

    class Meta:
        managed = False
        db_table = "ledger_event"

    def __str__(self) -> str:
        return f"{self.type} at {self.place}"

    def save(self, *_: object, **__: object) -> NoReturn:
        raise AppendOnly("events come in through ledger.intake or ledger.desk")

    def delete(self, *_: object, **__: object) -> NoReturn:
        raise AppendOnly("events are never deleted")


class EventKey(models.Model):
    """Which event ids a workspace has seen, with the digest of what they said; kept 400 days.

    On a partitioned table a unique key needs the partition column: hence a table of its own.
    """

    pk = models.CompositePrimaryKey("workspace_id", "event_id")
    workspace = models.ForeignKey(
        Workspace, on_delete=models.PROTECT, db_index=False, db_constraint=False
    )
    event_id = models.CharField(max_length=EVENT_ID_CHARACTERS_MAX)
    content = models.BinaryField(help_text="SHA-256 of the canonical masked event, without salt")
    place = models.BigIntegerField()
    received_at = models.DateTimeField()

    class Meta:
        # Keys come in the order of time, so this index is a few pages and costs ingest nothing.
        indexes: ClassVar = [
            BrinIndex(fields=["received_at"], autosummarize=True, name="event_key_by_age")
        ]

    def __str__(self) -> str:
        return self.event_id


class EventConflict(models.Model):
    """An event id that came again with other content: refused, and recorded by digest."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE)
    event_id = models.CharField(max_length=EVENT_ID_CHARACTERS_MAX)
    content = models.BinaryField()
    key_prefix = models.CharField(max_length=12, blank=True)
    received_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.event_id


class Unsealed(models.Model):
    """An event that waits for the sealer; written in one transaction with it."""

    pk = models.CompositePrimaryKey("workspace_id", "place")
    workspace = models.ForeignKey(
        Workspace, on_delete=models.CASCADE, db_index=False, db_constraint=False
    )
    place = models.BigIntegerField()
    received_at = models.DateTimeField()

    def __str__(self) -> str:
        return str(self.place)


class Blob(models.Model):
    """A snapshot or result above 64 KiB, named by its SHA-256; at most 8 MiB."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE)
    sha256 = models.CharField(max_length=64)
    content = models.BinaryField(null=True)
    byte_count = models.PositiveIntegerField()
    received_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["workspace", "sha256"], name="blob_once")
        ]

    def __str__(self) -> str:
        return self.sha256
