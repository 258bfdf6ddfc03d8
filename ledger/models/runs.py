"""Runs, their checkpoints, and what was done in them: actions, attempts and effects, as folded."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.db.models import F, Func, Q, Value
from django.db.models.fields.json import KT
from django.db.models.functions import Length
from django.db.models.lookups import Exact, LessThan

from amends.protocol.vocabulary import ActionClass, Risk
from ledger.models.events import ACTION_ID_CHARACTERS_MAX, RUN_ID_CHARACTERS_MAX
from workspaces import formatting
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
            # Few end so, and a list of them by date would be walked through all the others.
            models.Index(
                fields=["workspace", "state", "-started_at", "-id"],
                name="run_ended_badly",
                condition=Q(state__in=["failed", "cancelled"]),
            ),
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


class ActionState(models.TextChoices):
    """`failed` always means no effect; before any attempt an action is planned or approved."""

    PLANNED = "planned"
    APPROVED = "approved"
    RUNNING = "running"
    UNKNOWN = "unknown"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class AttemptState(models.TextChoices):
    """What is known only grows: running < unknown < {succeeded, no_effect} < contradiction."""

    RUNNING = "running"
    UNKNOWN = "unknown"
    SUCCEEDED = "succeeded"
    NO_EFFECT = "no_effect"
    CONTRADICTION = "contradiction"


class Compensated(models.TextChoices):
    """`repaired` is the record alone: what an irreversible call did outside stands all the same."""

    NONE = "none"
    PARTLY = "partly"
    REPAIRED = "repaired", "Record repaired"
    COMPENSATED = "compensated"
    CORRECTED = "corrected"


class Verified(models.TextChoices):
    NOT_YET = "not_yet"
    OK = "ok"
    FAILED = "failed"


def choices_of(words: type[StrEnum]) -> list[tuple[str, str]]:
    """Words of the protocol as a field offers them."""
    return [(one.value, one.value.replace("_", " ").title()) for one in words]


UNNAMED = "unnamed call"
"""What is told of a call whose plan never came, or was refused: nobody knows its tool."""


class Action(models.Model):
    """One tool call. Everything but the desk's own fields is a pure function of its events.

    Workspace and agent are copies of the run's, without constraints of their own: the run has them,
    and checking each row three times would cost ingest a tenth. Nor is the run itself checked, or
    the action of an attempt: they are written under the run's lock, and only together.
    """

    workspace = models.ForeignKey(
        Workspace, on_delete=models.CASCADE, db_index=False, db_constraint=False
    )
    run = models.ForeignKey(
        Run, on_delete=models.CASCADE, related_name="actions", db_index=False, db_constraint=False
    )  # action_id_in_run leads with it
    agent = models.ForeignKey(
        Agent, on_delete=models.PROTECT, null=True, db_constraint=False, db_index=False
    )
    action = models.CharField(max_length=ACTION_ID_CHARACTERS_MAX)
    n = models.IntegerField(null=True)
    first_place = models.BigIntegerField(help_text="Breaks ties of n: the place of its first event")

    tool = models.CharField(max_length=200, blank=True)
    action_class = models.CharField(max_length=24, choices=choices_of(ActionClass), blank=True)
    risk = models.CharField(max_length=8, choices=choices_of(Risk), blank=True)
    saga = models.CharField(max_length=10, blank=True, help_text="pivot, retriable or nothing")
    op = models.CharField(max_length=200, blank=True)
    key = models.CharField(max_length=200, blank=True)
    targets = models.JSONField(default=list, help_text="[{type, id}]")
    args = models.JSONField(null=True)
    args_digest = models.CharField(
        max_length=64, blank=True, help_text="SHA-256 of tool, targets, args"
    )
    intent = models.JSONField(null=True, help_text="{goal, reason, confidence, model}")
    compensation = models.JSONField(null=True, help_text="The agent's suggestion")
    before = models.JSONField(null=True, help_text="Snapshots said by action.planned, per target")
    result = models.JSONField(null=True)
    error = models.JSONField(null=True)

    state = models.CharField(max_length=10, choices=ActionState.choices)
    compensated = models.CharField(
        max_length=12, choices=Compensated.choices, default=Compensated.NONE
    )
    verified = models.CharField(max_length=8, choices=Verified.choices, default=Verified.NOT_YET)
    checks = models.JSONField(null=True, help_text="[{name, expected, actual, ok}]")
    settled_by = models.CharField(max_length=120, blank=True)
    flags = ArrayField(models.CharField(max_length=40), default=list)
    trusted = models.BooleanField(default=False)

    current_attempt = models.CharField(max_length=120, blank=True, help_text="Of the last begin")
    fence = models.BigIntegerField(default=0, help_text="Rises with every begin that proceeds")
    planned_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    last_place = models.BigIntegerField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["run", "action"], name="action_id_in_run")
        ]
        indexes: ClassVar = [
            models.Index(fields=["run", "n", "first_place"], name="action_in_order"),
            models.Index(fields=["agent", "key"], name="action_by_key", condition=~Q(key="")),
            models.Index(fields=["workspace", "tool", "id"], name="action_of_tool"),
            models.Index(
                fields=["workspace", "tool", "-id"],
                condition=Q(compensated="compensated"),
                name="action_undone_by_tool",
            ),
            # Rare in a run, and asked for at each `begin`.
            models.Index(fields=["run"], condition=Q(saga="pivot"), name="action_pivot"),
            models.Index(
                fields=["run"], condition=Q(saga="", fence=0), name="action_without_place"
            ),
            models.Index(fields=["run"], condition=Q(verified="failed"), name="action_unproven"),
        ]

    def __str__(self) -> str:
        return f"{self.tool} {self.action}"

    @property
    def tool_words(self) -> str:
        """The tool as a sentence of the desk names it: an agent chose the word."""
        return formatting.named(self.tool) if self.tool else f"an {UNNAMED}"

    @property
    def targets_words(self) -> str:
        """`order 12, customer 7`"""
        return ", ".join(f"{one.get('type')} {one.get('id')}" for one in self.targets or [])


class Attempt(models.Model):
    """One try at an action. A stale fence is kept, flagged, and settles nothing."""

    action = models.ForeignKey(
        Action,
        on_delete=models.CASCADE,
        related_name="attempts",
        db_index=False,
        db_constraint=False,
    )  # attempt_in_action leads with it
    attempt = models.CharField(max_length=120)
    state = models.CharField(max_length=13, choices=AttemptState.choices)
    fence = models.BigIntegerField(null=True)
    stale = models.BooleanField(default=False)
    retry = models.CharField(max_length=10, blank=True, help_text="model, tool, workflow, human")
    error = models.JSONField(null=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["action", "attempt"], name="attempt_in_action")
        ]

    def __str__(self) -> str:
        return f"{self.attempt}: {self.state}"


# Effects: what an action did to one target.


class Reversibility(models.TextChoices):
    EXACT = "exact"
    COMPENSABLE = "compensable"
    IRREVERSIBLE = "irreversible"
    UNKNOWN = "unknown"


WEAKER = (
    Reversibility.EXACT,
    Reversibility.COMPENSABLE,
    Reversibility.UNKNOWN,
    Reversibility.IRREVERSIBLE,
)
"""Each undoes less than the one before."""


def weakest(found: Iterable[Reversibility]) -> Reversibility:
    """What holds of several that are undone together; of none it is unknown."""
    return max(found, key=WEAKER.index, default=Reversibility.UNKNOWN)


class SnapshotSource(models.TextChoices):
    """Only observed snapshots, or those of a trusted runtime, are restored without a person."""

    OBSERVED = "observed"
    REPORTED = "reported"


REF_CHARACTERS = len("sha256:") + 64


def named_snapshot(column: str) -> models.Index:
    """Leads from a large snapshot to the effects that name it. An agent may have written anything
    under the name `ref`: only what is as long as a reference is in it, for an index takes no text
    of any length.
    """
    ref = KT(f"{column}__ref")
    name, condition = f"effect_naming_{column}", Q(Exact(Length(ref), REF_CHARACTERS))
    return models.Index(models.F("workspace"), ref, name=name, condition=condition)


class Effect(models.Model):
    """What an action did to one target.

    `before` is what the desk observed, else what action.planned said, else what the completion
    said. A snapshot may be `{"ref": "sha256:…"}`, which names a blob.
    """

    workspace = models.ForeignKey(
        Workspace, on_delete=models.CASCADE, db_index=False, db_constraint=False
    )
    action = models.ForeignKey(
        Action,
        on_delete=models.CASCADE,
        related_name="effects",
        db_index=False,
        db_constraint=False,
    )  # effect_in_action leads with it
    position = models.PositiveSmallIntegerField(
        help_text="Within one action the last is undone first"
    )
    target_type = models.CharField(max_length=120)
    target_id = models.CharField(max_length=400)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    has_before = models.BooleanField(
        default=False, help_text="null may be said, or not said at all"
    )
    has_after = models.BooleanField(default=False)
    source = models.CharField(
        max_length=8, choices=SnapshotSource.choices, default=SnapshotSource.REPORTED
    )
    summary = models.CharField(max_length=400, blank=True)
    reversibility = models.CharField(
        max_length=12, choices=Reversibility.choices, default=Reversibility.UNKNOWN
    )
    undo_until = models.DateTimeField(null=True)
    affects = models.JSONField(null=True, help_text="{id, name, contact?}; default on_behalf_of")
    compensated = models.CharField(
        max_length=12, choices=Compensated.choices, default=Compensated.NONE
    )
    withdrawn = models.BooleanField(
        default=False, help_text="Later events no longer tell of it; kept for those who point here"
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["action", "position"], name="effect_in_action")
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["workspace", "target_type", "target_id", "-id"], name="effect_by_target"
            ),
            named_snapshot("before"),
            named_snapshot("after"),
        ]

    def __str__(self) -> str:
        return f"{self.target_type} {self.target_id}"

    @property
    def person(self) -> dict[str, Any] | None:
        """Whom it affects: the person named with it, else the one on whose behalf the run acted."""
        found: dict[str, Any] | None = self.affects or self.action.run.on_behalf_of
        return found
