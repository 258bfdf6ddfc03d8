"""Cases: one failed or suspicious run in the recovery queue, and what hangs from it."""

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from amends.protocol.vocabulary import Risk
from ledger.models import Action, Checkpoint, Reversibility, Run
from ledger.models.events import RUN_ID_CHARACTERS_MAX
from ledger.models.runs import choices_of
from workspaces import moves
from workspaces.models import Agent, User, Workspace
from workspaces.moves import BORN

SHORT_FIELDS = ("failed_target", "failed_tool", "customer", "customer_name")
ASKED = ("agent", "claimed_by", "claimed_until", "snoozed_until")
"""What is asked beside a part of a name, and by every list of open cases."""
AMOUNT = ("amount_minor", "currency")
ENDED = ("outcome", "closed_at", "due_at", "reversibility", "without_effects")


class CaseState(models.TextChoices):
    OPEN = "open"
    WAITING = "waiting", "Waiting for approval"
    RECOVERING = "recovering"
    RESUMING = "resuming"
    CLOSED = "closed"


UNDER_A_PLAN = (CaseState.WAITING, CaseState.RECOVERING)
"""A plan of it has been submitted and has not ended."""

CASE_MOVES: dict[str, frozenset[str]] = {
    BORN: frozenset({CaseState.OPEN}),
    CaseState.OPEN: frozenset(
        {CaseState.WAITING, CaseState.RECOVERING, CaseState.RESUMING, CaseState.CLOSED}
    ),
    CaseState.WAITING: frozenset({CaseState.OPEN, CaseState.RECOVERING}),
    CaseState.RECOVERING: frozenset({CaseState.OPEN, CaseState.CLOSED}),
    CaseState.RESUMING: frozenset(
        {CaseState.OPEN, CaseState.WAITING, CaseState.RECOVERING, CaseState.CLOSED}
    ),
    CaseState.CLOSED: frozenset({CaseState.OPEN}),
}
"""A trigger keeps `was`, so that a process of an older version, which knows no `was`, may move a
case while an upgrade goes on."""


class CaseOutcome(models.TextChoices):
    """How a case ended; it never closes with an unknown outcome or a live plan."""

    RESTORED = "restored"
    CORRECTED = "corrected"
    RESUMED = "resumed"
    PARTLY = "partly", "Not fully restored"
    EXPECTED = "expected"
    ALREADY_HANDLED = "already_handled", "Already handled"
    DUPLICATE = "duplicate"


RECOVERED = (CaseOutcome.RESTORED, CaseOutcome.CORRECTED)
"""All that it did was undone or corrected."""

TOLD = (*RECOVERED, CaseOutcome.PARTLY)
"""Of which the person affected is told."""

PUT_RIGHT = (CaseOutcome.RESTORED, CaseOutcome.CORRECTED, CaseOutcome.RESUMED)
"""Nothing is left of what went wrong."""


class Suggestion(models.TextChoices):
    SETTLE = "settle", "Settle first"
    RESUME = "resume"
    COMPENSATE = "compensate"
    CLOSE = "close"


class Cause(models.Model):
    """Like failures together: a fingerprint of tool, error type and normalised message."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    fingerprint = models.CharField(max_length=64)
    tool = models.CharField(max_length=200)
    error_type = models.CharField(max_length=200)
    message = models.CharField(max_length=400)
    first_seen_at = models.DateTimeField(auto_now_add=True)
    last_seen_at = models.DateTimeField(auto_now=True)
    last_closed_at = models.DateTimeField(null=True)
    case_count = models.PositiveIntegerField(default=0)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["workspace", "fingerprint"], name="cause_once")
        ]
        indexes: ClassVar = [
            models.Index(fields=["workspace", "-last_seen_at", "-id"], name="cause_seen_last")
        ]

    def __str__(self) -> str:
        return self.message


class Case(models.Model):
    """A case, written so that the queue reads its row alone.

    What a list shows is kept here in words, renewed by triage whenever the run's revision rises.
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    run = models.OneToOneField(Run, on_delete=models.CASCADE, related_name="case")
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, null=True)
    cause = models.ForeignKey(
        Cause, on_delete=models.SET_NULL, null=True, related_name="cases", db_index=False
    )
    run_ref = models.CharField(
        max_length=RUN_ID_CHARACTERS_MAX,
        blank=True,
        default="",
        db_default="",
        help_text="The id of its run, for patterns; empty of one that an older version opened",
    )
    model = models.CharField(max_length=120, blank=True, default="", db_default="")
    was = models.CharField(max_length=10, blank=True, default=BORN, db_default=BORN)
    state = models.CharField(max_length=10, choices=CaseState.choices, default=CaseState.OPEN)
    revision = models.BigIntegerField(default=1, help_text="Every change posts the one it saw")

    reasons = ArrayField(models.CharField(max_length=40), default=list, help_text="What opened it")
    evidence = models.JSONField(default=list, help_text="[{code, key, words}] of the reasons now")
    answered = ArrayField(
        models.CharField(max_length=200),
        default=list,
        help_text="Keys of reasons that a closing has seen; only others reopen it",
    )
    without_effects = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Its run failed and did nothing: low, and listed in a view of its own alone",
    )
    headline = models.CharField(max_length=400)
    headline_in_full = models.CharField(
        max_length=400,
        blank=True,
        default="",
        db_default="",
        help_text="With what a check expected and found: for whoever is shown payloads",
    )
    brief = models.CharField(
        max_length=200, blank=True, help_text="The trouble alone, for a line of the queue"
    )
    risk = models.CharField(max_length=8, choices=choices_of(Risk))
    risk_rank = models.PositiveSmallIntegerField(help_text="0 low … 3 critical, for sorting")
    failed_action = models.ForeignKey(
        Action, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    failed_tool = models.CharField(max_length=200, blank=True)
    failed_target = models.CharField(max_length=400, blank=True)
    tools = ArrayField(
        models.CharField(max_length=200),
        default=list,
        help_text="Every tool of the run, in lower case: tool: is asked of this row alone",
    )
    customer = models.CharField(max_length=120, blank=True)
    customer_name = models.CharField(max_length=200, blank=True)
    request = models.TextField(blank=True)
    suggestion = models.CharField(max_length=10, choices=Suggestion.choices)
    suggestion_reason = models.CharField(max_length=400)
    suggestion_text = models.CharField(
        max_length=400, blank=True, help_text="Refund $1 286, restore 2 flights"
    )
    reversibility = models.CharField(
        max_length=12,
        choices=Reversibility.choices,
        default=Reversibility.UNKNOWN,
        help_text="The plan's sign is its weakest step's",
    )
    needs_approval = models.CharField(max_length=200, blank=True, help_text="In words; empty: none")
    # What undoing would move. What is at stake is another sum, and stands in the headline alone.
    amount_minor = models.BigIntegerField(null=True)
    currency = models.CharField(max_length=3, blank=True)
    unknown_count = models.PositiveIntegerField(default=0)
    standing_count = models.PositiveIntegerField(default=0, help_text="Effects not compensated")

    failed_at = models.DateTimeField()
    opened_at = models.DateTimeField(db_default=Now(), help_text="Since when it is in the queue")
    reopened_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True, help_text="Policy's due time or first undo window")
    undo_until = models.DateTimeField(null=True, help_text="When the first undo window closes")
    snoozed_until = models.DateTimeField(
        null=True, help_text="Until when it is out of the list of open cases; what is due is not"
    )
    claimed_by = models.ForeignKey(
        User, on_delete=models.SET_NULL, null=True, related_name="claims"
    )
    claimed_until = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)
    closed_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    outcome = models.CharField(max_length=16, choices=CaseOutcome.choices, blank=True)
    closing_reason = models.TextField(blank=True)
    probes = models.PositiveSmallIntegerField(
        default=0, help_text="How often its unknown calls were asked for by itself"
    )
    probe_at = models.DateTimeField(null=True)
    corrections_drafted_at = models.DateTimeField(null=True)
    by_hand_at = models.DateTimeField(
        null=True,
        help_text="All that stood then was put right by hand, as people said; also once reopened",
    )
    considered_revision = models.BigIntegerField(
        default=0, help_text="Up to which auto-compensation has looked"
    )
    search = SearchVectorField(null=True)

    class Meta:
        constraints: ClassVar = [moves.constraint(CASE_MOVES, name="case_moves")]
        indexes: ClassVar = [
            models.Index(
                fields=["id"],
                condition=Q(
                    state=CaseState.OPEN,
                    suggestion=Suggestion.COMPENSATE,
                    considered_revision__lt=F("revision"),
                ),
                name="case_to_be_considered",
            ),
            # What no index puts in order (a part of a name, an amount) is asked of these two alone,
            # and not of the rows, which are wide; what goes with risk, in its order. An entry takes
            # 2,704 bytes: all the text of one, four bytes a character, has room in it.
            models.Index(
                fields=["workspace", "-risk_rank", "-failed_at", "-id"],
                include=[*ASKED, "failed_target", "failed_tool", *AMOUNT],
                condition=~Q(state=CaseState.CLOSED) & Q(without_effects=False),
                name="case_open_as_called",
            ),
            models.Index(
                fields=["workspace", "-failed_at", "-id"],
                include=[*ASKED, "risk_rank", "run_ref", "model", "customer", "customer_name"],
                condition=~Q(state=CaseState.CLOSED) & Q(without_effects=False),
                name="case_open_as_named",
            ),
            models.Index(fields=["id"], condition=Q(run_ref=""), name="case_without_its_run"),
            models.Index(
                fields=["workspace", "due_at", "id"],
                condition=~Q(state=CaseState.CLOSED) & Q(without_effects=False),
                name="case_open_by_due",
            ),
            models.Index(
                fields=["workspace", "undo_until", "id"],
                condition=~Q(state=CaseState.CLOSED) & Q(without_effects=False),
                name="case_open_by_window",
            ),
            models.Index(  # all that counting them needs, without their rows, which are wide
                fields=["workspace", "snoozed_until"],
                condition=~Q(state=CaseState.CLOSED) & Q(without_effects=False),
                name="case_open_by_snooze",
            ),
            models.Index(
                fields=["workspace", "-risk_rank", "-failed_at", "-id"],
                condition=~Q(state=CaseState.CLOSED) & Q(without_effects=True),
                name="case_open_without_effects",
            ),
            models.Index(  # few are, and a list of them would be walked through all open ones
                fields=["workspace", "state", "-risk_rank", "-failed_at", "-id"],
                condition=Q(state__in=["waiting", "recovering", "resuming"]),
                name="case_under_way",
            ),
            models.Index(fields=["workspace", "-failed_at", "-id"], name="case_newest"),
            models.Index(
                fields=["workspace", "-risk_rank", "-failed_at", "-id"],
                include=[*ENDED, "agent", "run_ref", "model", *AMOUNT],
                condition=Q(state=CaseState.CLOSED),
                name="case_closed_as_called",
            ),
            # What the saved views of the queue count.
            models.Index(
                fields=["workspace", "-risk_rank", "-failed_at", "-id"],
                condition=~Q(state=CaseState.CLOSED)
                & Q(without_effects=False, unknown_count__gt=0),
                name="case_of_unknown_outcome",
            ),
            models.Index(
                fields=["workspace", "-risk_rank", "-failed_at", "-id"],
                condition=~Q(state=CaseState.CLOSED)
                & Q(without_effects=False, reversibility=Reversibility.IRREVERSIBLE),
                name="case_irreversible",
            ),
            models.Index(fields=["workspace", "customer"], name="case_by_customer"),
            # What open consoles ask every two seconds: was any opened, closed or reopened since?
            models.Index(fields=["workspace", "opened_at"], name="case_by_opening"),
            models.Index(
                fields=["workspace", "closed_at"],
                include=["outcome", "without_effects"],
                condition=Q(closed_at__isnull=False),
                name="case_closings",
            ),
            models.Index(
                fields=["workspace", "reopened_at"],
                condition=Q(reopened_at__isnull=False),
                name="case_reopenings",
            ),
            # What a cause's line counts: what is open, and what came lately.
            models.Index(
                fields=["cause"], condition=~Q(state=CaseState.CLOSED), name="case_open_of_cause"
            ),
            models.Index(fields=["cause", "-opened_at"], name="case_newest_of_cause"),
            GinIndex(fields=["search"], name="case_words"),
            GinIndex(  # of few keys: there is nothing to put off, and a list of it would be read
                fields=["tools", "reasons"], fastupdate=False, name="case_tools_and_reasons"
            ),
            # Patterns over what is short: trigrams of whole texts would outgrow the texts.
            GinIndex(
                fields=SHORT_FIELDS,
                opclasses=["gin_trgm_ops"] * len(SHORT_FIELDS),
                name="case_short_fields",
            ),
            models.Index(
                fields=["probe_at", "id"],
                condition=Q(state=CaseState.OPEN, suggestion=Suggestion.SETTLE),
                name="case_to_be_asked_for",
            ),
            # Whose letters are not drafted yet, in the order of their turn: those that were put
            # right, and those that the desk ended by itself.
            models.Index(
                fields=["id"],
                condition=Q(state=CaseState.CLOSED, corrections_drafted_at=None)
                & (Q(outcome__in=TOLD) | Q(outcome=CaseOutcome.EXPECTED, closed_by=None)),
                name="case_without_its_letter",
            ),
            models.Index(
                fields=["id"],
                condition=Q(
                    state=CaseState.CLOSED,
                    corrections_drafted_at=None,
                    outcome=CaseOutcome.ALREADY_HANDLED,
                    by_hand_at__isnull=False,
                ),
                name="case_by_hand_to_be_told",
            ),
        ]

    def __str__(self) -> str:
        return self.headline


OF_RUN = {"run_ref": "run__run", "model": "run__model"}
"""What a case carries of its run, and where the run has it."""


class ReportSource(models.TextChoices):
    OPERATOR = "operator"
    AGENT = "agent"
    END_USER = "end_user", "affected person"


class Report(models.Model):
    """Somebody says that a run did wrong; it stands until the case is closed."""

    case = models.ForeignKey(Case, on_delete=models.CASCADE, related_name="reports")
    source = models.CharField(max_length=8, choices=ReportSource.choices)
    person = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")
    text = models.TextField()
    at = models.DateTimeField(
        db_default=Now(), help_text="By the database's clock: the end of a plan is held against it"
    )

    upheld: bool | None = None
    """Whether the affected person is right, who contests it, and nothing was done about it since;
    None until somebody has answered them. Of what was gathered with a run (run_facts)."""

    def __str__(self) -> str:
        return self.text[:60]


class Silence(models.Model):
    """That triage has looked at a run whose lease ended with no end of the run.

    The clock changes no revision, so without this row the same silent runs would be looked at again
    and again; a renewed lease makes it out of date.
    """

    run = models.OneToOneField(Run, on_delete=models.CASCADE, related_name="silence")
    lease_until = models.DateTimeField()

    def __str__(self) -> str:
        return f"silent since {self.lease_until:%Y-%m-%d %H:%M}"


class AdviceRenewal(models.Model):
    """How far the open cases of a workspace have been advised anew since a policy came into force.

    A policy changes no run, so triage would not look: what a row suggests, whom it would ask and
    whether anything can be undone would stand as the policy before had it.
    """

    workspace = models.OneToOneField(Workspace, on_delete=models.CASCADE, primary_key=True)
    since = models.DateTimeField(help_text="When the policy came into force")
    up_to = models.BigIntegerField(default=0, help_text="The last case that was advised anew")
    is_done = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"advised up to case {self.up_to}"


class ReadbackState(models.TextChoices):
    WAITING = "waiting"
    READ = "read"
    REWRITTEN = "rewritten"
    GIVEN_UP = "given_up"


class Readback(models.Model):
    """An action that its rule wants read back over a connection, until that was done."""

    action = models.OneToOneField(Action, on_delete=models.CASCADE, related_name="readback")
    state = models.CharField(max_length=10, default=ReadbackState.WAITING)
    due_at = models.DateTimeField()
    tries = models.PositiveSmallIntegerField(default=0)
    detail = models.CharField(max_length=400, blank=True, help_text="Why it was given up")

    class Meta:
        indexes: ClassVar = [
            models.Index(
                fields=["due_at"], condition=Q(state=ReadbackState.WAITING), name="readback_due"
            )
        ]

    def __str__(self) -> str:
        return f"{self.action_id}: {self.state}"


class Comment(models.Model):
    case = models.ForeignKey(Case, on_delete=models.CASCADE, related_name="comments")
    person = models.ForeignKey(User, on_delete=models.PROTECT)
    text = models.TextField()
    at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.text[:60]


class Residue(models.Model):
    """What could not be undone, with an owner and a due date."""

    case = models.ForeignKey(Case, on_delete=models.CASCADE, related_name="residues")
    effect = models.ForeignKey("ledger.Effect", on_delete=models.SET_NULL, null=True)
    text = models.TextField()
    owner = models.ForeignKey(User, on_delete=models.PROTECT)
    due_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True)
    done_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")
    done_note = models.TextField(blank=True, help_text="What was done about it")
    reminded_at = models.DateTimeField(
        null=True, help_text="When its owner was told that it is due"
    )

    class Meta:
        indexes: ClassVar = [
            models.Index(
                fields=["due_at", "id"], condition=Q(done_at=None), name="residue_open_by_due"
            )
        ]

    def __str__(self) -> str:
        return self.text[:60]


# Directives: what the desk wants of a run. The desk never runs forward actions itself.


class Directive(models.Model):
    """Stop, or resume from a checkpoint with these steps skipped and repeated."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="directives")
    kind = models.CharField(max_length=6, choices=[("stop", "stop"), ("resume", "resume")])
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, null=True)
    steps = models.JSONField(default=list, help_text="[{action, tool, label, key}]")
    issued_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True)
    issued_at = models.DateTimeField(
        db_default=Now(), help_text="By the database's clock: answers are held against it"
    )
    acknowledge_by = models.DateTimeField(null=True)
    acknowledged_at = models.DateTimeField(null=True)
    withdrawn_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["run"],
                condition=Q(acknowledged_at__isnull=True, withdrawn_at__isnull=True),
                name="one_standing_directive",
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.run_id}"
