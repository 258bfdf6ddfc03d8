"""Secrets at rest: encrypted, rotated, and written but never shown."""

import json
from typing import Any, ClassVar

from django.db import models
from django.utils import timezone

from workspaces import crypt
from workspaces.models.workspace import Workspace


class SecretQuerySet(models.QuerySet["Secret"]):
    def seal(self, workspace: Workspace, name: str, value: dict[str, Any]) -> "Secret":
        """Encrypt `value` (JSON-serialisable, at most 16 KiB) and keep it under `name`."""
        return self.create(workspace=workspace, name=name, sealed=crypt.seal(json.dumps(value)))


class Secret(models.Model):
    """One credential. Whoever needs it opens it just before the call and keeps it nowhere."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="secrets")
    name = models.CharField(max_length=120)
    sealed = models.BinaryField()
    created_at = models.DateTimeField(auto_now_add=True)
    rotated_at = models.DateTimeField(null=True)

    objects = SecretQuerySet.as_manager()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["workspace", "name"], name="secret_by_name")]

    def __str__(self) -> str:
        return self.name

    def open(self) -> dict[str, Any]:
        """The value in clear. Raises `crypt.CannotOpen` if no current key fits."""
        value: dict[str, Any] = json.loads(crypt.open_sealed(bytes(self.sealed)))
        return value

    def rotate(self) -> None:
        """Encrypt the same value anew under the first key of the ring."""
        self.sealed = crypt.rotate(bytes(self.sealed))
        self.rotated_at = timezone.now()
        self.save(update_fields=["sealed", "rotated_at"])
