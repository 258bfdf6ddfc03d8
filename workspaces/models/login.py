"""A workspace's own log-in at its company's identity provider, as an administrator set it."""

import uuid
from typing import Any, ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from workspaces.models.tenants import Secret, User, Workspace


def new_id() -> str:
    return uuid.uuid4().hex


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
