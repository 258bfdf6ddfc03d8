"""What the gate judges by: versions of the policy, pauses, named lists, keys that it met, what it
denied or found worth a look, which arguments tools take, and what conditions remember.
"""

from collections.abc import Collection
from datetime import UTC
from typing import ClassVar

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now, TruncDate

from amends.protocol.vocabulary import glob_matches
from workspaces.models import Agent, User, Workspace

# Keys that came to the gate: the row that two tries of one call lock, and their lease.


RESTORED = "restored"
"""What a key keeps, before any denial since, once it was answered in doubt for a restore: people's
word then counts, until the desk comes back from another one.
"""


class GateKey(models.Model):
    """One idempotency key of one agent. Every `begin` of the key takes this row's lock first.

    What is known of the call is the ledger's; here stands only whose turn it is.
    """

    pk = models.CompositePrimaryKey("agent_id", "key")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    key = models.CharField(max_length=200)
    attempt = models.CharField(max_length=120, blank=True, help_text="Whose lease it is")
    lease_until = models.DateTimeField(null=True)
    denied = models.CharField(max_length=20, blank=True, help_text="What it was last denied for")
    met_at = models.DateTimeField(help_text="When it last came to the gate")

    class Meta:
        indexes: ClassVar = [  # of days: it is not written for every call
            BrinIndex(TruncDate("met_at", tzinfo=UTC), autosummarize=True, name="gate_key_days")
        ]

    def __str__(self) -> str:
        return self.key


# Pauses: what is stopped, by whom and why.


class PauseKind(models.TextChoices):
    WORKSPACE = "workspace"
    AGENT = "agent"
    TOOL = "tool"
    CONNECTION = "connection"
    RUN = "run"


def pause_fits(
    kind: str,
    name: str,
    *,
    agent: str | None = None,
    run: str | None = None,
    tool: str | None = None,
    connections: Collection[str] = (),
) -> bool:
    """Whether a pause of this kind and name stops what is done by that agent, in that run, with
    that tool, over those connections; of what is not given it stops nothing.
    """
    match kind:
        case PauseKind.WORKSPACE:
            return True
        case PauseKind.AGENT:
            return name == agent
        case PauseKind.RUN:
            return name == run
        case PauseKind.TOOL:
            return tool is not None and glob_matches(name, tool)
    return name in connections


class PauseQuerySet(models.QuerySet["Pause"]):
    def standing(self) -> "PauseQuerySet":
        """Placed and not yet lifted."""
        return self.filter(lifted_at=None)


class Pause(models.Model):
    """While one stands, `begin` is denied for what it names; approvals/pauses.py says what else."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="pauses")
    kind = models.CharField(max_length=10, choices=PauseKind.choices)
    name = models.CharField(
        max_length=200, blank=True, help_text="Agent, tool glob, connection or run"
    )
    reason = models.CharField(max_length=400)
    paused_by = models.ForeignKey(
        User,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        help_text="NULL: the desk itself, until an administrator has looked",
    )
    paused_at = models.DateTimeField(auto_now_add=True)
    lifted_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")
    lifted_at = models.DateTimeField(null=True)

    objects = PauseQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["workspace", "kind", "name"],
                condition=Q(lifted_at__isnull=True),
                name="one_standing_pause",
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


# Calls that a rule denied at the gate: they are no actions, so dry runs look for them here.


class Denial(models.Model):
    """One call of one key in one run, with what the policy judged (the column was `deed` before the
    class was ToolCall), and how often it came.
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE)
    key = models.CharField(max_length=200)
    run_ref = models.CharField(max_length=120, help_text="Run id of the call")
    deed = models.JSONField(default=dict, help_text="What was judged, masked as in the ledger")
    times = models.PositiveIntegerField(default=1, db_default=1, help_text="How often it came")
    denied_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["agent", "key", "run_ref"], name="denied_once_per_key_and_run"
            )
        ]
        indexes: ClassVar = [
            models.Index(fields=["workspace", "-id"], name="denial_newest_first"),
            models.Index(fields=["workspace", "run_ref"], name="denial_of_run"),
        ]

    def __str__(self) -> str:
        return f"{self.deed.get('tool', '')} in {self.run_ref}"


ARGUMENTS_SHOWN_MAX = 20


class ToolShape(models.Model):
    """Which arguments an agent has announced that a tool takes (`approvals.inventory`)."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, db_index=False)
    tool = models.CharField(max_length=200)
    digest = models.CharField(max_length=64)
    schema = models.JSONField(help_text="JSON Schema; {} where it is too large")
    since = models.DateTimeField(help_text="When it took the place of another, or came first")
    told_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["agent", "tool", "digest"], name="shape_of_tool")
        ]

    def __str__(self) -> str:
        return f"{self.tool} of {self.agent}"

    def arguments(self) -> tuple[str, ...]:
        """The names of the arguments; what an agent announced need not be a schema at all."""
        found = self.schema.get("properties") if isinstance(self.schema, dict) else None
        return tuple(sorted(found))[:ARGUMENTS_SHOWN_MAX] if isinstance(found, dict) else ()


class PolicyVersion(models.Model):
    """One saved document, named by its digest; exactly one is active in a workspace."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="policies")
    number = models.PositiveIntegerField()
    document = models.JSONField()
    source = models.TextField(blank=True, help_text="As it was written, JSON or YAML")
    digest = models.CharField(max_length=64)
    author = models.ForeignKey(User, on_delete=models.SET_NULL, null=True)
    note = models.CharField(max_length=400, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    activated_at = models.DateTimeField(null=True)
    active = models.BooleanField(default=False)
    shadow_since = models.DateTimeField(
        null=True, help_text="Since when it is judged beside the active one, without a say"
    )
    unmet = models.JSONField(
        default=list, help_text="What it asks and nobody can meet, as last looked at"
    )
    looked_at = models.DateTimeField(null=True, help_text="When `unmet` was last looked at")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["workspace", "number"], name="policy_number"),
            models.UniqueConstraint(
                fields=["workspace"], condition=Q(active=True), name="one_active_policy"
            ),
            models.UniqueConstraint(
                fields=["workspace"],
                condition=Q(shadow_since__isnull=False),
                name="one_shadow_policy",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["looked_at"], condition=Q(active=True), name="policy_looked_at")
        ]

    def __str__(self) -> str:
        return f"policy {self.number}"


# What conditions of the policy remember. It holds nobody's words: subjects and values are digests.

DIGEST_CHARACTERS = 32  # 128 bits of SHA-256, in hex


class Tally(models.Model):
    """One sum or count for one subject, in buckets of a forty-eighth of its window.

    Whoever reads it in order to reserve holds its row, so of two calls one sees the other.
    """

    workspace = models.ForeignKey(
        Workspace, on_delete=models.CASCADE, db_index=False, db_constraint=False
    )
    meter = models.CharField(max_length=DIGEST_CHARACTERS, help_text="Which question of which rule")
    subject = models.CharField(max_length=DIGEST_CHARACTERS, help_text="For whom or what")
    buckets = models.JSONField(default=dict, help_text="Number of the bucket: amount")
    since = models.DateTimeField(db_default=Now())
    touched_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["workspace", "meter", "subject"], name="one_tally")
        ]
        # One of ranges: with a tree each call would have to write all indexes of the row.
        indexes: ClassVar = [BrinIndex(fields=["touched_at"], name="tally_ages")]

    def __str__(self) -> str:
        return f"{self.meter} of {self.subject}"


class Reservation(models.Model):
    """What one call holds of a tally, until its outcome is known; `held` once it may be made.

    A call that people were asked about holds what it says as soon as it is granted. What a step of
    a plan holds has no agent and no action, and the plan in the place of the run.
    """

    tally = models.ForeignKey(Tally, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    key = models.CharField(max_length=200)
    run_ref = models.CharField(max_length=120)
    action = models.CharField(max_length=120)
    bucket = models.BigIntegerField()
    amount = models.DecimalField(max_digits=40, decimal_places=10)
    held = models.BooleanField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tally", "agent", "key"], name="reserved_once")
        ]
        # Of steps of plans, which are no calls of an agent; no call writes it.
        indexes: ClassVar = [
            models.Index(fields=["run_ref"], condition=Q(action=""), name="reservation_of_plan")
        ]

    def __str__(self) -> str:
        return f"{self.amount} by {self.key}"


class Sighting(models.Model):
    """A value that a call was begun with, so that it can be said whether it is known."""

    workspace = models.ForeignKey(
        Workspace, on_delete=models.CASCADE, db_index=False, db_constraint=False
    )
    field = models.CharField(max_length=DIGEST_CHARACTERS, help_text="What the rule asks about")
    value = models.CharField(max_length=DIGEST_CHARACTERS)
    shape = models.CharField(max_length=DIGEST_CHARACTERS, help_text="Of its skeleton: look-alikes")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    person = models.CharField(max_length=DIGEST_CHARACTERS, blank=True)
    run_ref = models.CharField(max_length=120)
    action = models.CharField(max_length=120)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        # One for both questions, since what is spelled alike has one shape: each call writes it.
        indexes: ClassVar = [
            models.Index(
                fields=["workspace", "field", "shape", "value", "-id"],
                name="sighting_of_value_by_shape",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.field} {self.value}"


class NamedList(models.Model):
    """A list of values, such as payees. Each change makes a version with a digest of its own."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    name = models.CharField(max_length=60)
    kind = models.CharField(max_length=6, help_text="How entries are written and compared")
    version = models.PositiveIntegerField(default=0)
    digest = models.CharField(max_length=64, blank=True, help_text="Of this version and all before")
    count = models.PositiveIntegerField(default=0, help_text="Of the entries that stand")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["workspace", "name"], name="list_of_a_name"),
        ]

    def __str__(self) -> str:
        return self.name


class ListEntry(models.Model):
    """One value on a list, from one version on and, once it was taken off, until another."""

    list = models.ForeignKey(
        NamedList, on_delete=models.CASCADE, related_name="entries", db_index=False
    )
    key = models.CharField(max_length=32, help_text="By which its normal form is found")
    mark = models.CharField(
        max_length=32, blank=True, help_text="By which it is found where the policy masks it"
    )
    shown = models.CharField(max_length=300, help_text="As it was written; hidden kinds masked")
    label = models.CharField(max_length=200, blank=True)
    since = models.PositiveIntegerField(help_text="The version that brought it")
    until = models.PositiveIntegerField(null=True, help_text="The version that took it off")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["list", "key"], condition=Q(until=None), name="once_on_a_list"
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["list", "mark"],
                condition=Q(until=None) & ~Q(mark=""),
                name="entry_by_its_mark",
            ),
            models.Index(fields=["list", "-id"], condition=Q(until=None), name="entry_that_stands"),
            models.Index(fields=["list", "since"], name="entry_by_version"),
            models.Index(
                fields=["list", "until"], condition=Q(until__isnull=False), name="entry_taken_off"
            ),
        ]

    def __str__(self) -> str:
        return self.shown


class ListChange(models.Model):
    """One version of a list: who made it, when, and how much came and went."""

    list = models.ForeignKey(
        NamedList, on_delete=models.CASCADE, related_name="changes", db_index=False
    )
    version = models.PositiveIntegerField()
    digest = models.CharField(max_length=64)
    by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")
    at = models.DateTimeField(db_default=Now())
    note = models.TextField(blank=True)
    added = models.PositiveIntegerField()
    removed = models.PositiveIntegerField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["list", "version"], name="one_change_a_version"),
        ]

    def __str__(self) -> str:
        return f"{self.list_id} {self.version}"


class Review(models.Model):
    """One call that ran unasked, and by which rule it is worth a look."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    run_ref = models.CharField(max_length=120)
    action = models.CharField(max_length=120)
    glob = models.CharField(max_length=200)
    words = models.CharField(max_length=400, help_text="The rule's own; they name no value")
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["workspace", "run_ref", "action", "words"], name="looked_at_once"
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["workspace", "at"], name="review_by_age")]

    def __str__(self) -> str:
        return self.words
