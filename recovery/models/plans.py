"""Plans: the immutable, digested list of compensations for a case, newest first."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from ledger.models import Checkpoint
from recovery.models.cases import Case
from workspaces.models import User, Workspace
from workspaces.moves import BORN, constraint


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
