"""A question put to people, who must answer it, and each person's answer."""

from typing import ClassVar

from django.contrib.auth.models import AnonymousUser
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from amends.protocol.vocabulary import Risk
from connectors.models import Delivery
from ledger.models import Action
from ledger.models.runs import choices_of
from workspaces import moves
from workspaces.access import workspaces_of
from workspaces.models import Agent, Delegation, Team, User, Workspace
from workspaces.moves import BORN


class SubjectKind(models.TextChoices):
    ACTION = "action"
    PLAN = "plan"
    GRANT = "grant"


class ApprovalState(models.TextChoices):
    WAITING = "waiting"
    GRANTED = "granted"
    USED = "used"
    REJECTED = "rejected"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


LIVING = (ApprovalState.WAITING, ApprovalState.GRANTED)
"""It may still be used, and it may still expire."""

APPROVAL_MOVES = {
    BORN: {ApprovalState.WAITING},
    ApprovalState.WAITING: {
        ApprovalState.GRANTED,
        ApprovalState.REJECTED,
        ApprovalState.EXPIRED,
        ApprovalState.WITHDRAWN,
    },
    ApprovalState.GRANTED: {
        ApprovalState.USED,
        ApprovalState.EXPIRED,
        ApprovalState.WITHDRAWN,
    },
    ApprovalState.USED: set(),
    ApprovalState.REJECTED: set(),
    ApprovalState.EXPIRED: set(),
    ApprovalState.WITHDRAWN: set(),
}


class ApprovalQuerySet(models.QuerySet["Approval"]):
    def visible_to(self, person: User | AnonymousUser) -> "ApprovalQuerySet":
        return self.filter(workspace__in=workspaces_of(person))

    def open(self) -> "ApprovalQuerySet":
        """Asked and not yet answered, by the database's clock."""
        return self.filter(state="waiting", expires_at__gt=Now())

    def living(self) -> "ApprovalQuerySet":
        """Open, or granted and not yet used: what a change of the policy still concerns."""
        return self.filter(state__in=["waiting", "granted"], expires_at__gt=Now())


class Approval(models.Model):
    """One question, about one forward action, one whole plan, or a bounded grant for calls to come.

    Its digest binds everything that would run; a grant is used once, in one conditional UPDATE by
    the database's clock. A bounded one is drawn on under its lock (gate/bounded_grants.py).
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    subject_kind = models.CharField(max_length=6, choices=SubjectKind.choices)
    action = models.ForeignKey(
        Action, on_delete=models.CASCADE, null=True, related_name="approvals"
    )
    plan_id = models.BigIntegerField(
        null=True, help_text="Plain id of a plan, which lives upstairs"
    )
    subject_key = models.CharField(
        max_length=400, help_text="Action: agent and key; asked once per key and run"
    )

    run_ref = models.CharField(max_length=120, blank=True, help_text="Run id of the subject")
    case_ref = models.CharField(max_length=60, blank=True, help_text="Number of the plan's case")

    subject = models.JSONField(default=dict, help_text="The subject as the digest holds it")
    digest = models.CharField(max_length=64)
    calls = models.JSONField(help_text="What would run, call by call, with each call's digest")
    targets = ArrayField(
        models.CharField(max_length=400),
        default=list,
        help_text="What its calls are about, as “type id”, to find what was decided before",
    )
    rules = models.JSONField(help_text="The matched rules, in words and as written")
    headline = models.CharField(max_length=300)
    previews = models.JSONField(default=list, help_text="One preview per call, as shown")
    agent_text = models.JSONField(
        null=True, help_text="What the agent wrote: goal, reason, confidence"
    )
    risk = models.CharField(max_length=8, choices=choices_of(Risk))
    amount_minor = models.BigIntegerField(null=True)
    currency = models.CharField(max_length=3, blank=True)

    accepts_changed_arguments = models.BooleanField(
        default=False, db_default=False, help_text="Whether its call may be approved with a change"
    )

    replaces = models.OneToOneField(
        "self",
        on_delete=models.CASCADE,
        null=True,
        related_name="replaced_by",
        help_text="The question as it was before somebody changed its arguments",
    )

    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, null=True)
    agent_owner = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")
    requested_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")
    reason = models.TextField(blank=True)
    self_approval = models.BooleanField(default=False)
    fresh_login = models.BooleanField(
        default=False, help_text="Critical: log-in under 5 minutes old"
    )

    signed = models.BooleanField(
        default=False, db_default=False, help_text="Each yes is signed by the person’s own key"
    )

    affected = models.CharField(
        max_length=4,
        blank=True,
        choices=[("ask", "as evidence"), ("must", "before anybody grants")],
        help_text="Whether the affected person is asked first",
    )

    was = models.CharField(max_length=9, blank=True, default=BORN)
    state = models.CharField(
        max_length=9, choices=ApprovalState.choices, default=ApprovalState.WAITING
    )
    asked_at = models.DateTimeField()
    remind_at = models.DateTimeField(null=True)
    reminded_at = models.DateTimeField(null=True)
    not_before = models.DateTimeField(
        null=True, help_text="Approved for later: until then its call waits"
    )
    escalate_at = models.DateTimeField(null=True)
    escalated_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True)
    used_at = models.DateTimeField(null=True)
    used_by = models.CharField(
        max_length=120, blank=True, default="", db_default="", help_text="The try that has used it"
    )
    closing_reason = models.TextField(blank=True, help_text="Why rejected or withdrawn")
    closed_by = models.ForeignKey(
        User,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        help_text="Who rejected or withdrew it; NULL with withdrawn: the desk, to ask anew",
    )

    objects = ApprovalQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            moves.constraint(APPROVAL_MOVES, name="approval_moves"),
            models.CheckConstraint(
                condition=Q(subject_kind="action", action__isnull=False, plan_id__isnull=True)
                | Q(subject_kind="plan", action__isnull=True, plan_id__isnull=False)
                | Q(subject_kind="grant", action__isnull=True, plan_id__isnull=True),
                name="approval_has_one_subject",
            ),
            models.UniqueConstraint(
                fields=["workspace", "plan_id"],
                condition=Q(state__in=["waiting", "granted"]),
                name="one_living_approval_of_a_plan",
            ),
            models.UniqueConstraint(
                fields=["workspace", "subject_key", "run_ref"],
                condition=Q(subject_kind="action", state__in=["waiting", "granted"]),
                name="asked_once_per_key_and_run",
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["workspace", "expires_at", "id"],
                condition=Q(state="waiting"),
                name="approval_waiting",
            ),
            models.Index(fields=["workspace", "-id"], name="approval_newest_first"),
            # What open consoles ask every two seconds: was any decided since?
            models.Index(
                fields=["workspace", "decided_at"],
                condition=Q(decided_at__isnull=False),
                name="approval_by_decision",
            ),
            models.Index(fields=["action"], name="approval_of_action"),
            # What retention and erasure ask of every run: was anything put to people in it?
            models.Index(
                fields=["workspace", "run_ref"], condition=~Q(run_ref=""), name="approval_of_run"
            ),
            GinIndex(fields=["targets"], name="approval_targets"),
            models.Index(fields=["workspace", "subject_key", "-id"], name="approval_of_key"),
            models.Index(
                fields=["escalate_at"],
                condition=Q(state="waiting", escalate_at__isnull=False, escalated_at=None),
                name="approval_escalating",
            ),
            models.Index(
                fields=["expires_at"],
                condition=Q(state__in=["waiting", "granted"]),
                name="approval_expiring",
            ),
        ]

    def __str__(self) -> str:
        return self.headline

    @property
    def askers(self) -> set[int]:
        """Who asked, and who owns the agent: it takes somebody else than these."""
        return {pk for pk in (self.requested_by_id, self.agent_owner_id) if pk}

    @property
    def asker(self) -> str:
        """Who asks, by name."""
        return str(self.requested_by or self.agent or "the policy")


class Requirement(models.Model):
    """Who must answer. All requirements must be met, and one decision fills one of them."""

    approval = models.ForeignKey(Approval, on_delete=models.CASCADE, related_name="requirements")
    team = models.ForeignKey(
        Team, on_delete=models.PROTECT, null=True, help_text="NULL: anybody with approve"
    )
    escalated_to = models.ForeignKey(
        Team,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        db_index=False,
        help_text="Asked, too, since nobody had decided in time",
    )
    count = models.PositiveSmallIntegerField(default=1)
    position = models.PositiveSmallIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.count} of {self.team or 'anybody who may approve'}"


class Decision(models.Model):
    """One person's answer.

    Four eyes is in the database too: requester and owner are copied here by trigger, and whether
    the person counts as somebody else (workspaces/independence.py), both they and whoever lent them
    their right; then checked, so that no code path can forget it. NULL: decided before this was
    looked up.
    """

    approval = models.ForeignKey(Approval, on_delete=models.CASCADE, related_name="decisions")
    requirement = models.ForeignKey(Requirement, on_delete=models.PROTECT, null=True)
    person = models.ForeignKey(
        User, on_delete=models.PROTECT, related_name="decisions", db_index=False
    )  # decision_by_person leads with it
    granted = models.BooleanField()
    reason = models.TextField(blank=True)
    seen_digest = models.CharField(max_length=64)
    shown = models.JSONField(null=True, help_text="What was shown")
    shown_seconds = models.FloatField(null=True)
    fresh_login_at = models.DateTimeField(null=True)
    signature = models.JSONField(
        null=True, help_text="The assertion by the person’s key: credential, authenticator, client"
    )
    at = models.DateTimeField(auto_now_add=True)
    delegation = models.ForeignKey(
        Delegation,
        on_delete=models.PROTECT,
        null=True,
        related_name="decisions",
        db_index=False,
        help_text="By which it is an answer in somebody else's right",
    )
    principal = models.ForeignKey(
        User,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        db_index=False,
        editable=False,
        help_text="In whose right, by that delegation; NULL: their own",
    )
    break_glass = models.BooleanField(
        default=False, db_default=False, help_text="Of one of two who decide in place of others"
    )
    requester_id = models.BigIntegerField(null=True, editable=False)
    owner_id = models.BigIntegerField(null=True, editable=False)
    self_approval = models.BooleanField(default=False, editable=False)
    is_proven = models.BooleanField(null=True, editable=False)
    is_independent = models.BooleanField(null=True, editable=False)
    teams = ArrayField(
        models.CharField(max_length=80), default=list, help_text="As they stood then"
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["approval", "person"], name="one_answer_each"),
            models.UniqueConstraint(fields=["approval", "principal"], name="one_answer_in_a_right"),
            models.CheckConstraint(
                condition=Q(self_approval=True)
                | Q(granted=False)
                | (
                    (Q(requester_id__isnull=True) | ~Q(person_id=F("requester_id")))
                    & (Q(owner_id__isnull=True) | ~Q(person_id=F("owner_id")))
                    & (Q(is_independent__isnull=True) | Q(is_independent=True))
                ),
                name="four_eyes",
            ),
            models.CheckConstraint(
                condition=Q(is_proven__isnull=True) | Q(is_proven=True),
                name="decided_from_a_proven_address",
            ),
            models.CheckConstraint(
                condition=Q(break_glass=False)
                | (
                    Q(granted=True, delegation=None, fresh_login_at__isnull=False)
                    & Q(is_independent=True, is_proven=True)
                ),
                name="glass_is_broken_by_two_others",
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["person", "at"], name="decision_by_person")]

    def __str__(self) -> str:
        return f"{self.person} {'approved' if self.granted else 'rejected'}"

    @property
    def who(self) -> str:
        """Who answered, and for whom."""
        return f"{self.person}, for {self.principal}" if self.principal else str(self.person)


class GrantUse(models.Model):
    """One call that a bounded grant has let pass. It counts until the call is known to have had no
    effect.
    """

    approval = models.ForeignKey(
        Approval, on_delete=models.CASCADE, related_name="uses", db_index=False
    )
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    key = models.CharField(max_length=200)
    run_ref = models.CharField(max_length=120)
    action = models.CharField(max_length=120)
    amount = models.DecimalField(max_digits=40, decimal_places=10)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["approval", "agent", "key"], name="drawn_once_per_key")
        ]

    def __str__(self) -> str:
        return f"{self.amount} by {self.key}"


# Questions that people ask back before they decide, and their answers.


class Clarification(models.Model):
    """One question to whoever asked for the approval. Its answer is read, and decides nothing."""

    approval = models.ForeignKey(Approval, on_delete=models.CASCADE, related_name="clarifications")
    asked_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    question = models.TextField()
    asked_at = models.DateTimeField(auto_now_add=True)
    answer = models.TextField(blank=True)
    answered_by = models.ForeignKey(
        User, on_delete=models.PROTECT, null=True, related_name="+", help_text="NULL: the agent"
    )
    answered_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "approvals_enquiry"  # as it was first called
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(answered_at__isnull=False) | Q(answer="", answered_by__isnull=True),
                name="enquiry_answered_at_a_time",
            )
        ]

    def __str__(self) -> str:
        return self.question


# Who was told of an approval, when, and by which channel.


class NotificationKind(models.TextChoices):
    """What somebody was told."""

    ASKED = "requested", "that it waits"
    REMINDED = "reminded", "that half of the time is over"
    QUESTIONED = "questioned", "that a decider has a question"
    ANSWERED = "answered", "that a question is answered"
    CONSENT_ASKED = "affected", "what they want, as the affected person"
    CONSENT_ANSWERED = "heard", "what the affected person wants"
    ENDED = "ended", "how it ended"


class NotificationRecord(models.Model):
    """One message about an approval. Its way and its tries are the delivery's."""

    approval = models.ForeignKey(Approval, on_delete=models.CASCADE, related_name="told")
    about = models.CharField(max_length=10, choices=NotificationKind)
    person = models.ForeignKey(
        User,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        help_text="NULL: a channel, or the affected person",
    )
    to = models.CharField(max_length=320, help_text="The channel's name, or the person's address")
    delivery = models.ForeignKey(
        Delivery, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False
    )
    at = models.DateTimeField(auto_now_add=True)
    noted_at = models.DateTimeField(null=True, help_text="When the ledger was told what became")

    class Meta:
        db_table = "approvals_told"  # as it was first called
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["delivery"], name="told_once_by_a_message"),
            models.CheckConstraint(
                condition=Q(about__in=NotificationKind.values), name="told_about"
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["id"], name="told_not_noted", condition=Q(noted_at=None)),
        ]

    def __str__(self) -> str:
        return f"{self.to}, {self.get_about_display()}"


# What the affected person was asked before the people who decide, and what they answered.


class ConsentAnswer(models.TextChoices):
    OPEN = "", "has not answered"
    YES = "yes", "wants it"
    NO = "no", "does not want it"


class ConsentRequest(models.Model):
    """What one affected person wants: evidence for those who decide. It starts nothing by itself.

    The link is known by its digest; the sealed copy is for operators who pass it on by hand.
    """

    approval = models.ForeignKey(
        Approval, on_delete=models.CASCADE, related_name="consent_requests"
    )
    person_ref = models.CharField(max_length=120, help_text="Their id, as the agent named them")
    name = models.CharField(max_length=200, blank=True)
    contact = models.CharField(max_length=320, blank=True)
    question = models.TextField()
    token_digest = models.CharField(max_length=64, unique=True)
    token_sealed = models.BinaryField()
    asked_at = models.DateTimeField(auto_now_add=True)
    answer = models.CharField(
        max_length=3, blank=True, choices=ConsentAnswer, default=ConsentAnswer.OPEN
    )
    note = models.TextField(blank=True, help_text="In their own words")
    answered_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "approvals_wish"  # as it was first called
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["approval", "person_ref"], name="asked_once_each"),
            models.CheckConstraint(
                condition=Q(answer="", answered_at__isnull=True)
                | Q(answer__in=["yes", "no"], answered_at__isnull=False),
                name="wish_answered_at_a_time",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name or self.person_ref} {self.get_answer_display()}"
