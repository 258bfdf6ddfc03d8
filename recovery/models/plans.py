"""Plans and steps: a step compensates one effect; and the only moves that they can make.

Each table of moves below is the Python rule and, through a check constraint on the pair
(`was`, `state`), the database's too: editing it without a migration fails `makemigrations --check`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from django.db import models
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from amends.protocol.vocabulary import Risk
from connectors.models import Connection
from ledger.models import Checkpoint, Effect, Reversibility
from ledger.models.runs import choices_of
from ledger.parsed_events import StoredEvent
from recovery.models.cases import Case
from workspaces import moves
from workspaces.models import User, Workspace
from workspaces.moves import BORN, constraint

# Plans: the immutable, digested list of compensations for a case, newest first.


class PlanState(models.TextChoices):
    """`waiting` for approval, `starting` while a live run is told to stop; then it runs."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"


# What states have in common, as for steps.
UNSTARTED = (PlanState.WAITING, PlanState.STARTING)
"""Nothing of it was sent."""

STARTED = (PlanState.RUNNING, PlanState.STOPPED)
"""Its steps may be in hand, on the wire, or left for people."""

LIVING = (*UNSTARTED, PlanState.RUNNING)
OPEN_ENDED = (*LIVING, PlanState.STOPPED)
"""A stopped one may still have steps that wait for a person."""

PLAN_MOVES: dict[str, frozenset[str]] = {
    BORN: frozenset({PlanState.WAITING}),
    PlanState.WAITING: frozenset(
        {
            PlanState.STARTING,
            PlanState.RUNNING,
            PlanState.STOPPED,
            PlanState.REJECTED,
            PlanState.SUPERSEDED,
        }
    ),
    PlanState.STARTING: frozenset({PlanState.RUNNING, PlanState.STOPPED, PlanState.SUPERSEDED}),
    PlanState.RUNNING: frozenset({PlanState.FINISHED, PlanState.STOPPED, PlanState.SUPERSEDED}),
    PlanState.FINISHED: frozenset(),
    PlanState.STOPPED: frozenset({PlanState.SUPERSEDED}),
    PlanState.REJECTED: frozenset(),
    PlanState.SUPERSEDED: frozenset(),
}


class Plan(models.Model):
    """What would run is frozen at submission; only the state moves."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    case = models.ForeignKey(Case, on_delete=models.CASCADE, related_name="plans")
    number = models.PositiveIntegerField()
    was = models.CharField(max_length=10, blank=True, default=BORN)
    state = models.CharField(max_length=10, choices=PlanState.choices, default=PlanState.WAITING)
    digest = models.CharField(max_length=64)
    headline = models.CharField(max_length=400)
    reach = models.ForeignKey(
        Checkpoint, on_delete=models.PROTECT, null=True, help_text="NULL: back to the start"
    )
    case_revision = models.BigIntegerField()
    run_revision = models.BigIntegerField()
    basis = models.CharField(
        max_length=64,
        blank=True,
        help_text="Digest of the effects and doubts that it was drafted from",
    )
    policy_digest = models.CharField(max_length=64, blank=True)
    more_standing = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Effects for which it had no room: the next plan's"
    )
    accounts = models.JSONField(
        null=True, help_text="By connection and purpose, whose account; NULL: an older version"
    )
    halt_on_failure = models.BooleanField(default=False)
    automatic = models.BooleanField(default=False, help_text="Started by policy, not by a person")
    override_drift = models.BooleanField(default=False)
    approval_id = models.BigIntegerField(null=True)
    drafted_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")
    reason = models.TextField(blank=True)
    drafted_at = models.DateTimeField(auto_now_add=True)
    submitted_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    hinted_at = models.DateTimeField(null=True, help_text="When the sweeper last woke a worker")
    stopped_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")

    class Meta:
        constraints: ClassVar = [
            constraint(PLAN_MOVES, name="plan_moves"),
            models.UniqueConstraint(fields=["case", "number"], name="plan_number_in_case"),
            models.UniqueConstraint(
                fields=["case"],
                condition=Q(state__in=list(LIVING)),
                name="one_living_plan_of_a_case",
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["id"],
                condition=Q(state__in=list(LIVING)),
                name="plan_living",
            ),
            models.Index(
                fields=["id"],
                condition=Q(state=PlanState.STOPPED, ended_at__isnull=True),
                name="plan_stopping",
            ),
            # What insights count.
            models.Index(
                fields=["workspace", "-started_at", "-id"],
                condition=Q(started_at__isnull=False),
                name="plan_started_last",
            ),
        ]

    def __str__(self) -> str:
        return self.headline


class StepState(models.TextChoices):
    BLOCKED = "blocked"
    READY = "ready"
    CLAIMED = "claimed"
    INTENDED = "intended"
    UNKNOWN = "unknown"
    APPLIED = "applied"
    VERIFIED = "verified"
    REPORTED = "reported"
    DRIFTED = "drifted"
    NEEDS_HUMAN = "needs_human"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


STEP_MOVES: dict[str, frozenset[str]] = {
    BORN: frozenset({StepState.BLOCKED, StepState.READY}),
    StepState.BLOCKED: frozenset({StepState.READY, StepState.SKIPPED, StepState.CANCELLED}),
    StepState.READY: frozenset(
        {StepState.CLAIMED, StepState.SKIPPED, StepState.CANCELLED, StepState.NEEDS_HUMAN}
    ),
    StepState.CLAIMED: frozenset(
        {
            StepState.INTENDED,
            StepState.READY,
            StepState.DRIFTED,
            StepState.NEEDS_HUMAN,
            StepState.VERIFIED,
            StepState.CANCELLED,
        }
    ),
    StepState.INTENDED: frozenset(
        {StepState.APPLIED, StepState.READY, StepState.NEEDS_HUMAN, StepState.UNKNOWN}
    ),
    StepState.UNKNOWN: frozenset({StepState.APPLIED, StepState.READY, StepState.NEEDS_HUMAN}),
    StepState.APPLIED: frozenset({StepState.VERIFIED, StepState.REPORTED, StepState.NEEDS_HUMAN}),
    StepState.DRIFTED: frozenset({StepState.SKIPPED, StepState.CANCELLED}),
    StepState.NEEDS_HUMAN: frozenset(
        {StepState.APPLIED, StepState.READY, StepState.SKIPPED, StepState.CANCELLED}
    ),
    StepState.VERIFIED: frozenset(),
    StepState.REPORTED: frozenset(),
    StepState.SKIPPED: frozenset(),
    StepState.CANCELLED: frozenset(),
}

# What states have in common. Whoever asks for several at once, in Python or in SQL, asks for one of
# these sets; a new state is put into those that it belongs to.
ENDED = frozenset(state for state, moves in STEP_MOVES.items() if not moves)

WAITS_FOR_TURN = (StepState.BLOCKED, StepState.READY)
"""Nobody has it in hand; the ordering law says when it is claimed."""

TO_RUN = (*WAITS_FOR_TURN, StepState.CLAIMED)
"""Nothing is sent yet: a pause holds them, and a stop cancels them."""

IN_HAND = (StepState.CLAIMED, StepState.INTENDED)
"""A worker has it, under a lease."""

UNDER_WAY = (StepState.INTENDED, StepState.APPLIED)
"""Sent, or done and not read back: nobody is needed yet."""

ON_THE_WIRE = (StepState.INTENDED, StepState.UNKNOWN, StepState.APPLIED)
"""It may have had its effect: a stop sees it through."""

DUE_IN_TIME = (StepState.UNKNOWN, StepState.APPLIED, StepState.READY)
"""Its next try, probe or reading comes by its time (`wake_at`)."""

HOLDS_TARGET = (*IN_HAND, StepState.UNKNOWN, StepState.APPLIED)
"""No other step may act on the same target."""

WAITS_FOR_PEOPLE = (StepState.DRIFTED, StepState.NEEDS_HUMAN)

TROUBLED = (StepState.UNKNOWN, *WAITS_FOR_PEOPLE)
"""In doubt, or waits for a person."""

DONE = (StepState.VERIFIED, StepState.REPORTED)
LEFT = (StepState.SKIPPED, StepState.CANCELLED)

literals = moves.literals


def allowed_pairs() -> Q:
    """Every (`was`, `state`) of the table as one condition."""
    condition = Q()
    for was, follow in STEP_MOVES.items():
        if follow:
            condition |= Q(was=was, state__in=sorted(follow))
    return condition


class Step(models.Model):
    """Frozen facts above, the moving part below.

    Active states are unique per plan, and per target over all plans; an effect has one living step
    in all plans.
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    plan = models.ForeignKey(
        Plan, on_delete=models.CASCADE, related_name="steps", db_index=False
    )  # step_position_in_plan leads with it
    position = models.PositiveIntegerField(help_text="1 is the newest effect and runs first")
    effect = models.ForeignKey(Effect, on_delete=models.PROTECT, related_name="steps")
    connection = models.ForeignKey(Connection, on_delete=models.PROTECT, db_index=False)
    connection_digest = models.CharField(max_length=64)
    connector_version = models.CharField(max_length=40)
    operation = models.CharField(max_length=120)
    args = models.JSONField()
    target_type = models.CharField(max_length=120)
    target_id = models.CharField(max_length=400)
    before = models.JSONField(
        null=True, help_text="[what is to be restored], [] if not recorded; NULL: an older version"
    )
    expected = models.JSONField(null=True, help_text="State expected just before the call")
    fingerprint = models.CharField(max_length=64, blank=True, help_text="Digest of that state")
    post_condition = models.JSONField(null=True)
    preview = models.JSONField(default=dict)
    digest = models.CharField(max_length=64, help_text="Of this one call")
    risk = models.CharField(max_length=8, choices=choices_of(Risk))
    reversibility = models.CharField(max_length=12, choices=Reversibility.choices)
    rules = models.JSONField(default=list)
    override_drift = models.BooleanField(default=False)

    was = models.CharField(max_length=11, blank=True)
    state = models.CharField(max_length=11, choices=StepState.choices)
    moved_at = models.DateTimeField(db_default=Now())
    fence = models.BigIntegerField(default=0)
    lease_until = models.DateTimeField(null=True)
    claims = models.PositiveSmallIntegerField(default=0)
    tries = models.PositiveSmallIntegerField(default=0)
    generation = models.PositiveSmallIntegerField(
        default=1, help_text="Rises only when a named person authorises one more try"
    )
    key = models.CharField(max_length=80, help_text="Pure function of the undo, not of the plan")
    wake_at = models.DateTimeField(
        null=True, help_text="Not before this: back-off or probe horizon"
    )
    probes = models.PositiveSmallIntegerField(default=0)
    note = models.TextField(blank=True, help_text="Why it stands where it stands, for people")
    drift = models.JSONField(null=True, help_text="[{field, was, agent_wrote, now}]")
    evidence = models.JSONField(null=True)

    # In a worker's hands: what it has noted of the step's action, if that is all there is.
    recorded: tuple[StoredEvent, ...] | None = None
    # And the texts of which its frozen JSON was read: what is the same need not be read again.
    texts: Mapping[str, str | None] = MappingProxyType({})
    # Where it was asked of many at once: whether a try under its key is in doubt.
    has_try_in_doubt: bool | None = None
    # Where it was asked: whether what it did was itself undone.
    is_undone_again = False

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=allowed_pairs(), name="step_moves"),
            models.UniqueConstraint(fields=["plan", "position"], name="step_position_in_plan"),
            models.UniqueConstraint(
                fields=["plan"],
                condition=Q(state__in=list(IN_HAND)),
                name="one_active_step_of_a_plan",
            ),
            models.UniqueConstraint(
                fields=["workspace", "target_type", "target_id"],
                condition=Q(state__in=list(HOLDS_TARGET))
                | Q(state=StepState.NEEDS_HUMAN, was=StepState.UNKNOWN),
                name="one_active_step_of_a_target",
            ),
            models.UniqueConstraint(
                fields=["effect"],
                condition=~Q(state__in=[*DONE, *LEFT]),
                name="one_living_step_of_an_effect",
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["state", "wake_at", "id"],
                condition=~Q(state__in=[*DONE, *LEFT]),
                name="step_living",
            ),
            models.Index(
                fields=["connection"],
                condition=Q(state__in=list(IN_HAND)),
                name="step_in_hand",
            ),
        ]

    def __str__(self) -> str:
        return f"step {self.position}: {self.operation}"

    @property
    def is_lost(self) -> bool:
        """Whether it was sent, nobody knows what became of it, and only a person can say: also
        where the desk went on in that doubt, and something else has left it to people since.
        """
        if self.state != StepState.NEEDS_HUMAN:
            return self.state == StepState.UNKNOWN
        if self.was in {StepState.UNKNOWN, StepState.APPLIED}:
            return self.was == StepState.UNKNOWN
        if self.has_try_in_doubt is None:
            return Step.objects.filter(try_in_doubt(), pk=self.pk).exists()
        return self.has_try_in_doubt


ABSENT = "absent"
"""The outcome of a try without an answer, of which a probe or a person has found that it did
nothing. An answer that comes after all takes its place.
"""


def try_in_doubt() -> Exists:
    """Whether of a try of a step's target under its key, in whatever plan, no answer says what
    became of it.
    """
    tries = StepAttempt.objects.in_doubt().filter(key=OuterRef("key"))
    alike = {f"step__{name}": OuterRef(name) for name in ("workspace", "target_type", "target_id")}
    return Exists(tries.filter(**alike))


class StepAttemptQuerySet(models.QuerySet["StepAttempt"]):
    def with_possible_effect(self) -> "StepAttemptQuerySet":
        """Those that have had an effect, or may have: no answer is none, and what was found absent
        may have come since.
        """
        return self.exclude(outcome="no_effect")

    def not_ruled_out(self) -> "StepAttemptQuerySet":
        """Those that have had an effect, or of which nobody has found that they had none."""
        return self.exclude(outcome__in=["no_effect", ABSENT])

    def in_doubt(self) -> "StepAttemptQuerySet":
        """Those of which no answer says whether they had one, nor whoever looked for it since."""
        return self.exclude(outcome__in=["applied", "no_effect", ABSENT])


class StepAttempt(models.Model):
    """One try at a step: committed before the first byte leaves, completed after the answer."""

    step = models.ForeignKey(
        Step, on_delete=models.CASCADE, related_name="attempts", db_index=False
    )  # attempt_number_in_step leads with it
    number = models.PositiveSmallIntegerField()
    fence = models.BigIntegerField()
    key = models.CharField(max_length=80)
    intended_at = models.DateTimeField()
    answered_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=10, blank=True, help_text="applied, no_effect, unknown")
    detail = models.TextField(blank=True)
    evidence = models.JSONField(null=True)

    objects = StepAttemptQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["step", "number"], name="attempt_number_in_step")
        ]
        indexes: ClassVar = [
            # The key outlives the plan: an earlier plan's tries are found by it.
            models.Index(fields=["key"], name="attempt_by_key")
        ]

    def __str__(self) -> str:
        return f"try {self.number}"
