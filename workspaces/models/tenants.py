"""Tenants, people, teams; secrets at rest; what a program proves itself by."""

import json
import secrets
from datetime import timedelta
from functools import lru_cache
from typing import Any, ClassVar

from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import Group, PermissionsMixin
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Lower, Now
from guardian.models.models import GroupObjectPermissionBase

from workspaces import encryption

# The workspace: the tenant to which everything belongs.

STUCK_AFTER_SECONDS = 900
RETENTION_DAYS = 90
PROBATION_SECONDS = 24 * 3600
MASKING_KEY_BYTES = 32


def new_masking_key() -> bytes:
    """A random key, sealed; it is the workspace's for good, so that marks stay comparable."""
    return encryption.seal(secrets.token_hex(MASKING_KEY_BYTES))


@lru_cache(maxsize=1_000)
def opened_masking_key(sealed: bytes) -> bytes:
    """The masking key in clear. Raises `encryption.CannotOpen` if no current key fits."""
    return bytes.fromhex(encryption.open_sealed(sealed))


class Workspace(models.Model):
    """One tenant.

    The settings from `mask` on are copied here from the active policy version, so that the lower
    floors can read them without knowing what a policy is.
    """

    slug = models.SlugField(max_length=48, unique=True)
    name = models.CharField(max_length=120)
    timezone = models.CharField(max_length=64, default="UTC")
    created_at = models.DateTimeField(auto_now_add=True)

    mask = ArrayField(models.CharField(max_length=200), default=list, blank=True)
    mask_shows_last4 = models.BooleanField(
        default=False, db_default=False, help_text="Of cards and IBANs, for who may see payloads"
    )
    capture_intent = models.BooleanField(default=True)
    capture_snapshot = models.BooleanField(default=True)
    retention_days = models.PositiveIntegerField(default=RETENTION_DAYS)
    stuck_after_seconds = models.PositiveIntegerField(default=STUCK_AFTER_SECONDS)

    founder = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        null=True,
        related_name="+",
        help_text="Nobody brought them in, so they count from the first day",
    )
    probation_seconds = models.PositiveIntegerField(
        default=PROBATION_SECONDS,
        db_default=PROBATION_SECONDS,
        help_text="How long a new member does not count for whoever brought them in",
    )

    rate_key = models.PositiveIntegerField(null=True, help_text="Requests a minute of each key")
    rate_agent = models.PositiveIntegerField(null=True, help_text="Of each agent")
    rate_workspace = models.PositiveIntegerField(null=True, help_text="Of all of them together")

    masking_key = models.BinaryField(
        default=new_masking_key, help_text="Sealed; what tells masked values apart is made with it"
    )

    class Meta:
        default_permissions = ()
        permissions: ClassVar = [
            ("view", "Can read the queue, the runs and the ledger"),
            ("view_sensitive", "Can reveal payloads; each reveal is recorded"),
            ("recover", "Can compensate, resume, settle and close"),
            ("approve", "Can decide on approvals"),
            ("administer", "Can change members, keys, connections and policy"),
            ("edit_lists", "Can change the named lists that policies ask about"),
        ]

    def __str__(self) -> str:
        return self.name


class WorkspaceGroupPermission(GroupObjectPermissionBase):
    """What a team may do in a workspace; granted to groups only, never to a person.

    A direct foreign key, so that guardian joins instead of casting ids.
    """

    content_object = models.ForeignKey(Workspace, on_delete=models.CASCADE)


# People, the teams they stand in, and how a person gets in.


class UserManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str | None = None, **fields: Any) -> "User":
        user = self.model(email=self.normalize_email(email).lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> "User":
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)


class User(AbstractBaseUser, PermissionsMixin):
    """A person. Being a superuser opens nothing in a workspace: only a team's grants count."""

    email = models.EmailField(unique=True)
    name = models.CharField(max_length=120, blank=True)
    timezone = models.CharField(max_length=64, blank=True)
    single_keys = models.BooleanField(default=True, help_text="Single-key shortcuts (WCAG 2.1.4)")
    compact = models.BooleanField(
        default=False, db_default=False, help_text="Lists with less air, for those who live in them"
    )
    mail_approvals = models.BooleanField(
        default=True, help_text="Write to them when an approval waits for them, and of its end"
    )
    is_active = models.BooleanField(default=True)
    is_staff = models.BooleanField(default=False)
    date_joined = models.DateTimeField(auto_now_add=True)

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    objects = UserManager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(Lower("email"), name="user_email_without_case"),
        ]

    def __str__(self) -> str:
        return self.name or self.email

    def get_full_name(self) -> str:
        return str(self)

    def get_short_name(self) -> str:
        return str(self)


class Team(models.Model):
    """A named group of people of one workspace; owns the auth group that holds its grants."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="teams")
    name = models.CharField(max_length=80)
    group = models.OneToOneField(Group, on_delete=models.PROTECT, related_name="team")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["workspace", "name"], name="team_name_in_workspace"),
        ]

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """That a person was put into a team, and by whom; of those who put themselves into a team, by
    whom they had been brought in.

    `sponsors` are whoever did it, and whoever had brought those in a short while ago: all of them
    could be one person at two keyboards. Of people who stood in a team before this was written down
    there is no row.
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, db_index=False)
    person = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    added_by = models.ForeignKey(
        User, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False
    )
    sponsors = ArrayField(models.BigIntegerField(), default=list)
    added_at = models.DateTimeField(db_default=Now())
    vouched_at = models.DateTimeField(
        null=True, help_text="When somebody at the server said that they count at once"
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["team", "person"], name="one_membership_each"),
        ]
        # Who is new in a workspace is asked at each look at an inbox, and is nearly always nobody.
        indexes: ClassVar = [models.Index(fields=["workspace", "added_at"], name="newest_members")]

    def __str__(self) -> str:
        return f"{self.person} in {self.team}"


DELEGATION_DAYS_MAX = 90
"""So long somebody decides for somebody else at most; longer, and they belong into the team."""


class DelegationEnd(models.TextChoices):
    TIME = "time", "its time was over"
    REVOKED = "revoked", "it was revoked"
    LOST = "lost", "one of the two no longer had what it takes"


class Delegation(models.Model):
    """That one person decides for another for a while: with the right which the other has at that
    moment, and never with one that was handed to them (workspaces/delegations.py).
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE)
    delegator = models.ForeignKey(
        User, on_delete=models.PROTECT, related_name="delegations_given", db_index=False
    )
    delegate = models.ForeignKey(
        User, on_delete=models.PROTECT, related_name="delegations_held", db_index=False
    )
    team = models.ForeignKey(
        Team,
        on_delete=models.PROTECT,
        null=True,
        db_index=False,
        help_text="Only what this team is asked",
    )
    reason = models.CharField(max_length=400)
    created_at = models.DateTimeField(db_default=Now())
    starts_at = models.DateTimeField()
    until = models.DateTimeField()
    begun_at = models.DateTimeField(null=True, help_text="When the ledger was told of its begin")
    ended_at = models.DateTimeField(null=True)
    ended_by = models.ForeignKey(
        User, on_delete=models.PROTECT, null=True, related_name="+", db_index=False
    )
    end = models.CharField(max_length=7, choices=DelegationEnd.choices, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=models.Q(until__gt=models.F("starts_at"))
                & models.Q(until__lte=models.F("starts_at") + timedelta(days=DELEGATION_DAYS_MAX)),
                name="delegation_has_an_end",
            ),
            models.CheckConstraint(
                condition=~models.Q(delegator=models.F("delegate")),
                name="delegation_to_somebody_else",
            ),
            models.CheckConstraint(
                condition=models.Q(ended_at=None, end="")
                | models.Q(ended_at__isnull=False, end__in=DelegationEnd.values),
                name="delegation_ended_somehow",
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["delegate"],
                condition=models.Q(ended_at=None),
                name="delegation_of_delegate",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.delegate} for {self.delegator}"


class Invitation(models.Model):
    """A link by which one person joins teams of a workspace. Only the link's digest is kept."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField()
    teams = models.ManyToManyField(Team)
    digest = models.CharField(max_length=64, unique=True)
    invited_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True)
    withdrawn_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.email


class SetupLink(models.Model):
    """The one-time link that makes the first administrator and workspace."""

    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"set-up link of {self.created_at:%Y-%m-%d}"


# Secrets at rest: encrypted, rotated, and written but never shown.


class SecretQuerySet(models.QuerySet["Secret"]):
    def seal(
        self, workspace: Workspace, name: str, value: dict[str, Any], *, account: str = ""
    ) -> "Secret":
        """Encrypt `value` (JSON-serialisable, at most 16 KiB) and keep it under `name`."""
        return self.create(
            workspace=workspace,
            name=name,
            account=account,
            sealed=encryption.seal(json.dumps(value)),
        )


class Secret(models.Model):
    """One credential. Whoever needs it opens it just before the call and keeps it nowhere."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="secrets")
    name = models.CharField(max_length=120)
    sealed = models.BinaryField()
    account = models.CharField(
        max_length=200,
        blank=True,
        default="",
        db_default="",
        help_text="Whose account it opens, as the outside system said when it was entered",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    rotated_at = models.DateTimeField(null=True)

    objects = SecretQuerySet.as_manager()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["workspace", "name"], name="secret_by_name")]

    def __str__(self) -> str:
        return self.name

    def open(self) -> dict[str, Any]:
        """The value in clear. Raises `encryption.CannotOpen` if no current key fits."""
        value: dict[str, Any] = json.loads(encryption.open_sealed(bytes(self.sealed)))
        return value


# What a program proves itself by. A secret is shown once; only its digest is kept.


class Agent(models.Model):
    """A program that acts. Its owner never counts as an approver of what it asks."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="agents")
    name = models.SlugField(max_length=80)
    owner = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True)
    description = models.CharField(max_length=400, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["workspace", "name"], name="agent_name_in_workspace"),
        ]

    def __str__(self) -> str:
        return self.name


class BearerToken(models.Model):
    """A bearer token `amends_<prefix>_<secret>`: found by prefix, proven by SHA-256 of the whole.

    A plain digest is enough, for the secret is 32 random bytes and not a word anybody chose.
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE)
    name = models.CharField(max_length=120)
    prefix = models.CharField(max_length=12, unique=True)
    digest = models.BinaryField(max_length=32)
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class APIKey(BearerToken):
    """An agent's credential: it may ingest and ask, and can never approve."""

    SCOPES: ClassVar = ("ingest", "begin", "read", "import", "audit")
    OF_AGENTS: ClassVar = SCOPES[:3]
    """What an agent that acts is given. Who imports does not act, and who acts does not import."""
    ALONE: ClassVar = "audit"
    """Reads what happens in the whole workspace, so its key does nothing else."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="keys")
    scopes = ArrayField(models.CharField(max_length=20), default=list)
    trusted_runtime = models.BooleanField(
        default=False,
        help_text="Its snapshots and classes are believed, for no model can write them",
    )


class PersonToken(BearerToken):
    """A person's API token: the verbs of the pages over HTTP, and never a decision."""

    person = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")


# Acts: what people did below the ledger's floor, waiting to be written into it.


class Act(models.Model):
    """A person's act (`key.created`, `member.added` …) on its way to the ledger.

    Floors below the ledger may not call it, and a signal could be missed; so the act is a row
    written in the transaction of the act, and the ledger takes it in (`desk_events.take_in`).
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE)
    type = models.CharField(max_length=60)
    person = models.ForeignKey(User, on_delete=models.SET_NULL, null=True)
    data = models.JSONField(default=dict)
    at = models.DateTimeField(auto_now_add=True)
    taken_in_at = models.DateTimeField(null=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(
                fields=["id"], name="act_not_taken_in", condition=models.Q(taken_in_at__isnull=True)
            ),
            models.Index(
                fields=["workspace", "at"],
                condition=models.Q(type__in=["connection.secret_set", "connection.updated"]),
                name="act_of_connections",
            ),
        ]

    def __str__(self) -> str:
        return self.type


class Heartbeat(models.Model):
    """When a loop last went round, so that `/statusz` and the alerts notice one that stopped."""

    name = models.CharField(max_length=60, primary_key=True)
    beat_at = models.DateTimeField()
    every_seconds = models.FloatField()
    last_error = models.TextField(blank=True)
    failing_since = models.DateTimeField(null=True)
    told_at = models.DateTimeField(null=True, help_text="When people were told that it stopped")

    def __str__(self) -> str:
        return self.name
