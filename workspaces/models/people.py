"""People, the teams they stand in, and how a person gets in."""

from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import Group, PermissionsMixin
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Lower, Now

from workspaces.models.workspace import Workspace


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
    """That a person was put into a team, and by whom.

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
