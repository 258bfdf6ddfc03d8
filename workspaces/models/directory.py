"""What a company says of its people: by its directory (SCIM 2.0), with the token by which it says
so, and by the identity provider at which they log in, as an administrator set it.
"""

import uuid
from typing import Any, ClassVar

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models.functions import Lower, Now

from workspaces.models.tenants import BearerToken, Secret, Team, User, Workspace


def new_id() -> str:
    return uuid.uuid4().hex


class DirectoryToken(BearerToken):
    """By which the directory of a workspace speaks; whoever made it vouches for whom it brings."""


class DirectoryPerson(models.Model):
    """A person of the directory, and their account here once an address is known."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE)
    scim_id = models.CharField(max_length=32, unique=True, default=new_id)
    user_name = models.CharField(max_length=254)
    external_id = models.CharField(max_length=254, blank=True)
    document = models.JSONField(default=dict, help_text="Names and addresses, as they were said")
    active = models.BooleanField(default=True)
    person = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")
    created_at = models.DateTimeField(db_default=Now())
    changed_at = models.DateTimeField(db_default=Now())
    version = models.PositiveIntegerField(default=1)
    gone_at = models.DateTimeField(null=True, help_text="Deleted there; kept is whose account left")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint("workspace", Lower("user_name"), name="directory_user_name"),
            models.UniqueConstraint(fields=["workspace", "person"], name="directory_person_once"),
        ]

    def __str__(self) -> str:
        return self.user_name


class DirectoryGroup(models.Model):
    """A group of the directory: the team that it is here, and whom the directory puts into it."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE)
    scim_id = models.CharField(max_length=32, unique=True, default=new_id)
    team = models.OneToOneField(Team, on_delete=models.PROTECT, related_name="directory_group")
    external_id = models.CharField(max_length=254, blank=True)
    renamed = models.CharField(
        max_length=120,
        blank=True,
        db_default="",
        help_text="Its name there, where that is no longer the team's",
    )
    members = ArrayField(models.BigIntegerField(), default=list, help_text="Of DirectoryPerson")
    created_at = models.DateTimeField(db_default=Now())
    changed_at = models.DateTimeField(db_default=Now())
    version = models.PositiveIntegerField(default=1)
    gone_at = models.DateTimeField(null=True, help_text="Taken back; its team stays, empty")

    class Meta:
        indexes: ClassVar = [GinIndex(fields=["members"], name="directory_members")]

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """What the directory calls it. The team keeps the name under which rules know it."""
        return self.renamed or self.team.name


class LoginProvider(models.Model):
    """One issuer of OpenID Connect. Another issuer is another row with an id of its own: what one
    of them says of people is never taken for the other's word.
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="+")
    provider_id = models.CharField(max_length=32, unique=True, default=new_id)
    name = models.CharField(max_length=80)
    issuer = models.CharField(max_length=300)
    client_id = models.CharField(max_length=300)
    secret = models.ForeignKey(Secret, on_delete=models.SET_NULL, null=True, related_name="+")
    groups_claim = models.CharField(max_length=80, default="groups")
    places: "models.JSONField[Any, Any]" = models.JSONField(
        default=list, help_text="Pairs of a group there and the name of a team here"
    )
    domains = ArrayField(
        models.CharField(max_length=254), default=list, help_text="Of addresses that may join"
    )
    set_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    set_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["workspace"],
                condition=models.Q(ended_at=None),
                name="login_provider_one_a_workspace",
            ),
        ]

    def __str__(self) -> str:
        return self.name
