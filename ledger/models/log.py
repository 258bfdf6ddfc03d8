"""The Merkle log of a workspace: leaves, inner nodes, and signed heads (RFC 6962, C2SP)."""

from typing import ClassVar

from django.db import models

from workspaces.models import Secret, Workspace


class LogKey(models.Model):
    """An Ed25519 key that signs heads of one origin; the private half is a sealed secret."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE)
    origin = models.CharField(max_length=200)
    public_key = models.BinaryField(max_length=32)
    secret = models.ForeignKey(Secret, on_delete=models.PROTECT)
    created_at = models.DateTimeField(auto_now_add=True)
    retired_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.origin


class Leaf(models.Model):
    """The event at one index of the log, by its plain ledger place."""

    pk = models.CompositePrimaryKey("workspace_id", "index")
    workspace = models.ForeignKey(
        Workspace, on_delete=models.CASCADE, db_index=False, db_constraint=False
    )
    index = models.BigIntegerField()
    place = models.BigIntegerField()
    hash = models.BinaryField(max_length=32)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["workspace", "place"], name="leaf_once")
        ]

    def __str__(self) -> str:
        return str(self.index)


class TreeNode(models.Model):
    """A full inner node: root of the 2**level leaves from index * 2**level on. Never changes."""

    pk = models.CompositePrimaryKey("workspace_id", "level", "index")
    workspace = models.ForeignKey(
        Workspace, on_delete=models.CASCADE, db_index=False, db_constraint=False
    )
    level = models.PositiveSmallIntegerField()
    index = models.BigIntegerField()
    hash = models.BinaryField(max_length=32)

    def __str__(self) -> str:
        return f"{self.level}/{self.index}"


class TreeHead(models.Model):
    """A signed tree head: a C2SP checkpoint as text."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    origin = models.CharField(max_length=200)
    size = models.BigIntegerField()
    root = models.BinaryField(max_length=32)
    note = models.TextField()
    signed_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["workspace", "origin", "size"], name="head_once")
        ]

    def __str__(self) -> str:
        return f"{self.origin} {self.size}"
