"""What a program shows at the door. A secret is shown once; only its digest is kept."""

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models

from workspaces.models.people import User
from workspaces.models.workspace import Workspace


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

    SCOPES: ClassVar = ("ingest", "begin", "read", "import")
    OF_AGENTS: ClassVar = SCOPES[:3]
    """What an agent that acts is given. Who imports does not act, and who acts does not import."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="keys")
    scopes = ArrayField(models.CharField(max_length=20), default=list)
    trusted_runtime = models.BooleanField(
        default=False,
        help_text="Its snapshots and classes are believed, for no model can write them",
    )


class PersonToken(BearerToken):
    """A person's API token: the verbs of the pages over HTTP, and never a decision."""

    person = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
