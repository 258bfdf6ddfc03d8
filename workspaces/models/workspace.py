"""The workspace: the tenant to which everything belongs."""

import secrets
from functools import lru_cache
from typing import ClassVar

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from guardian.models.models import GroupObjectPermissionBase

from workspaces import crypt

STUCK_AFTER_SECONDS = 900
RETENTION_DAYS = 90
PROBATION_SECONDS = 24 * 3600
MASKING_KEY_BYTES = 32


def new_masking_key() -> bytes:
    """A random key, sealed; it is the workspace's for good, so that marks stay comparable."""
    return crypt.seal(secrets.token_hex(MASKING_KEY_BYTES))


@lru_cache(maxsize=1_000)
def opened_masking_key(sealed: bytes) -> bytes:
    """The masking key in clear. Raises `crypt.CannotOpen` if no current key fits."""
    return bytes.fromhex(crypt.open_sealed(sealed))


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
        ]

    def __str__(self) -> str:
        return self.name

    def rotate(self) -> None:
        """Seal the same masking key anew under the first key of the ring."""
        self.masking_key = crypt.rotate(bytes(self.masking_key))
        self.save(update_fields=["masking_key"])


class WorkspaceGroupPermission(GroupObjectPermissionBase):
    """What a team may do in a workspace; granted to groups only, never to a person.

    A direct foreign key, so that guardian joins instead of casting ids.
    """

    content_object = models.ForeignKey(Workspace, on_delete=models.CASCADE)
