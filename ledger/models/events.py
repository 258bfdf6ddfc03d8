"""Events: immutable statements, partitioned by the ledger's own receipt time.

The table itself is made by hand in the first migration (`PARTITION BY RANGE (received_at)`,
weekly), as are the triggers that refuse DELETE, TRUNCATE and every UPDATE but the owner's erasure.
Other tables refer to an event by its plain `place`, for no foreign key can point into a composite
key.
"""

from datetime import UTC
from typing import ClassVar, NoReturn

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models.functions import Now, TruncDate

from workspaces.models import Agent, Secret, User, Workspace

# The Merkle log of a workspace: leaves, inner nodes, and signed heads (RFC 6962, C2SP).


class LogKey(models.Model):
    """An Ed25519 key that signs heads of one origin; the private half is a sealed secret."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE)
    origin = models.CharField(max_length=200)
    public_key = models.BinaryField(max_length=32)
    secret = models.ForeignKey(Secret, on_delete=models.PROTECT)
    created_at = models.DateTimeField(auto_now_add=True)
    retired_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.origin


class Leaf(models.Model):
    """The event at one index of the log, by its plain ledger place."""

    pk = models.CompositePrimaryKey("workspace_id", "index")
    workspace = models.ForeignKey(
        Workspace, on_delete=models.CASCADE, db_index=False, db_constraint=False
    )
    index = models.BigIntegerField()
    place = models.BigIntegerField()
    hash = models.BinaryField(max_length=32)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["workspace", "place"], name="leaf_once")
        ]

    def __str__(self) -> str:
        return str(self.index)


class TreeNode(models.Model):
    """A full inner node: root of the 2**level leaves from index * 2**level on. Never changes."""

    pk = models.CompositePrimaryKey("workspace_id", "level", "index")
    workspace = models.ForeignKey(
        Workspace, on_delete=models.CASCADE, db_index=False, db_constraint=False
    )
    level = models.PositiveSmallIntegerField()
    index = models.BigIntegerField()
    hash = models.BinaryField(max_length=32)

    def __str__(self) -> str:
        return f"{self.level}/{self.index}"


class TreeHead(models.Model):
    """A signed tree head: a C2SP checkpoint as text."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    origin = models.CharField(max_length=200)
    size = models.BigIntegerField()
    root = models.BinaryField(max_length=32)
    note = models.TextField()
    signed_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["workspace", "origin", "size"], name="head_once")
        ]

    def __str__(self) -> str:
        return f"{self.origin} {self.size}"


# The registry of what was forgotten: whose payloads were erased, and what retention let go.


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


class AuditRound(models.Model):
    """How far the job that audits a log has gone round it, and what it found to be wrong last."""

    workspace = models.OneToOneField(Workspace, on_delete=models.CASCADE, primary_key=True)
    next_index = models.BigIntegerField(default=0)
    after_place = models.BigIntegerField(default=-(2**63), help_text="Of events looked at last")
    emptied = models.BigIntegerField(default=0, help_text="Emptied payloads met in this round")
    went_round_at = models.DateTimeField(null=True, help_text="When it came to the end last")
    wrong = models.CharField(max_length=1000, blank=True, help_text="Empty where all is well")
    wrong_from = models.BigIntegerField(
        default=0, help_text="Where the portion that is wrong began"
    )

    def __str__(self) -> str:
        return f"{self.workspace_id}: {self.next_index}"


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

    pk = models.CompositePrimaryKey("workspace_id", "place", "received_at")
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
        raise AppendOnly("events come in through ledger.intake or ledger.desk_events")

    def delete(self, *_: object, **__: object) -> NoReturn:
        raise AppendOnly("events are never deleted")


class EventKey(models.Model):
    """Which event ids a workspace has seen, with the digest of what they said; kept 400 days,
    and as long as its event.

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
        # Keys come in the order of time, so this index is a few pages; and as it is of days, a key
        # changes it once a day.
        indexes: ClassVar = [
            BrinIndex(
                TruncDate("received_at", tzinfo=UTC), autosummarize=True, name="event_key_ages"
            )
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


class TraceRoot(models.Model):
    """The root span of a trace that came before any other of its run, which it ends once there is
    one (ledger/foreign/traces.py).
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, db_index=False)
    run = models.CharField(max_length=RUN_ID_CHARACTERS_MAX)
    span = models.CharField(max_length=16)
    began = models.CharField(max_length=40, blank=True, help_text="As it is told to the ledger")
    ended = models.CharField(max_length=40, blank=True)
    error = models.JSONField(null=True, help_text="Masked; null where it did not fail")
    received_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["agent", "run", "span"], name="trace_root_once")
        ]
        indexes: ClassVar = [
            models.Index(fields=["workspace", "run"], name="trace_root_of_run"),
            models.Index(fields=["agent", "id"], name="trace_root_by_age"),
        ]

    def __str__(self) -> str:
        return f"{self.run}: {self.span}"
