"""Runs and their checkpoints, as folded from events."""

from datetime import UTC, datetime, timedelta
from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.db.models import F, Func, Q, Value
from django.db.models.lookups import LessThan

from ledger.models.events import RUN_ID_CHARACTERS_MAX
from workspaces.models import Agent, Workspace

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class DateBin(Func):
    """PostgreSQL's `date_bin`, which, unlike `date_trunc`, depends on no time zone."""

    function = "DATE_BIN"
    output_field = models.DateTimeField()


class RunState(models.TextChoices):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Run(models.Model):
    """One run of an agent. `revision` rises with every fold; triage looks at runs whose revision it
    has not seen, never at "numbers above the last", which would lose late commits.
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    run = models.CharField(max_length=RUN_ID_CHARACTERS_MAX)
    agent = models.ForeignKey(
        Agent, on_delete=models.PROTECT, null=True, help_text="NULL: the desk itself"
    )
    model = models.CharField(max_length=120, blank=True)
    request = models.TextField(blank=True, help_text="The user's words")
    goal = models.TextField(blank=True)
    customer = models.CharField(max_length=120, blank=True, help_text="on_behalf_of.id")
    customer_name = models.CharField(max_length=200, blank=True)
    on_behalf_of = models.JSONField(null=True)
    labels = models.JSONField(default=dict)
    trace = models.JSONField(null=True)

    state = models.CharField(max_length=12, choices=RunState.choices, default=RunState.RUNNING)
    summary = models.TextField(blank=True)
    error = models.JSONField(null=True, help_text="{type, message}")
    failed_action = models.CharField(max_length=120, blank=True)
    cancelled_by = models.CharField(max_length=200, blank=True)
    reason = models.TextField(blank=True)
    resumed_from = models.CharField(max_length=200, blank=True)
    flags = ArrayField(models.CharField(max_length=40), default=list)

    started_at = models.DateTimeField(null=True, help_text="Receipt of the first event")
    ended_at = models.DateTimeField(null=True)
    last_event_at = models.DateTimeField(null=True)
    first_place = models.BigIntegerField(null=True)
    last_place = models.BigIntegerField(null=True)
    lease_until = models.DateTimeField(null=True, help_text="Renewed by every event and begin")

    # Every event moves the columns that these are made of, and none of the indexed ones: so
    # PostgreSQL writes the new row beside the old one, and leaves all indexes as they are.
    lease_minute = models.GeneratedField(
        expression=DateBin(Value(timedelta(minutes=1)), F("lease_until"), Value(EPOCH)),
        output_field=models.DateTimeField(null=True),
        db_persist=True,
        help_text="The minute in which the lease ends",
    )
    is_unseen = models.GeneratedField(
        expression=LessThan(F("seen_revision"), F("revision")),
        output_field=models.BooleanField(),
        db_persist=True,
    )
    is_unsearchable = models.GeneratedField(
        expression=LessThan(F("search_revision"), F("revision")),
        output_field=models.BooleanField(),
        db_persist=True,
    )

    revision = models.BigIntegerField(default=0)
    seen_revision = models.BigIntegerField(default=0, help_text="What triage last looked at")
    held_by = models.CharField(
        max_length=60, blank=True, help_text="Who stopped it: 'case 12'; begin is denied while set"
    )
    forgotten_at = models.DateTimeField(
        null=True, help_text="What was said in it is erased; late events are refused"
    )
    has_erased_actions = models.BooleanField(
        default=False,
        db_default=False,
        help_text="What was said of single actions is erased; late events about these are refused",
    )
    # Without checks: PostgreSQL reads the text of a check anew for every statement.
    action_count = models.IntegerField(default=0)
    effect_count = models.IntegerField(default=0)
    search = SearchVectorField(
        null=True, help_text="Words, and workspace, state and agent as lexemes of their own"
    )
    search_revision = models.BigIntegerField(default=0, help_text="What `search` was made of")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["workspace", "run"], name="run_id_in_workspace")
        ]
        indexes: ClassVar = [
            models.Index(fields=["workspace", "-started_at", "-id"], name="run_newest_first"),
            models.Index(fields=["id"], name="run_unseen", condition=Q(is_unseen=True)),
            models.Index(fields=["lease_minute"], name="run_lease", condition=Q(state="running")),
            models.Index(
                fields=["workspace", "-id"],
                name="run_reported",
                condition=Q(flags__contains=["reported"]),
            ),
            models.Index(fields=["id"], name="run_unsearchable", condition=Q(is_unsearchable=True)),
            GinIndex(fields=["search"], name="run_words"),
        ]

    def __str__(self) -> str:
        return self.run


class Checkpoint(models.Model):
    """A safe pause point: state, what is done, what is pending, and a summary for people."""

    run = models.ForeignKey(
        Run, on_delete=models.CASCADE, related_name="checkpoints", db_index=False
    )  # checkpoint_once leads with it
    event_id = models.CharField(max_length=64)
    name = models.CharField(max_length=200)
    n = models.IntegerField(null=True)
    place = models.BigIntegerField()
    at = models.DateTimeField()
    state = models.JSONField(null=True)
    state_ref = models.CharField(max_length=200, blank=True)
    completed = models.JSONField(default=list)
    pending = models.JSONField(default=list)
    recovery_mode = models.CharField(max_length=60, blank=True)
    instructions = models.TextField(blank=True)
    summary = models.TextField(blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["run", "event_id"], name="checkpoint_once")
        ]

    def __str__(self) -> str:
        return self.name
