"""Named lists that conditions ask about: their entries, and who changed them when."""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from workspaces.models import User, Workspace


class NamedList(models.Model):
    """A list of values, such as payees. Each change makes a version with a digest of its own."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False)
    name = models.CharField(max_length=60)
    kind = models.CharField(max_length=6, help_text="How entries are written and compared")
    version = models.PositiveIntegerField(default=0)
    digest = models.CharField(max_length=64, blank=True, help_text="Of this version and all before")
    count = models.PositiveIntegerField(default=0, help_text="Of the entries that stand")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["workspace", "name"], name="list_of_a_name"),
        ]

    def __str__(self) -> str:
        return self.name


class ListEntry(models.Model):
    """One value on a list, from one version on and, once it was taken off, until another."""

    list = models.ForeignKey(
        NamedList, on_delete=models.CASCADE, related_name="entries", db_index=False
    )
    key = models.CharField(max_length=32, help_text="By which its normal form is found")
    mark = models.CharField(
        max_length=32, blank=True, help_text="By which it is found where the policy masks it"
    )
    shown = models.CharField(max_length=300, help_text="As it was written; hidden kinds masked")
    label = models.CharField(max_length=200, blank=True)
    since = models.PositiveIntegerField(help_text="The version that brought it")
    until = models.PositiveIntegerField(null=True, help_text="The version that took it off")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["list", "key"], condition=Q(until=None), name="once_on_a_list"
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["list", "mark"],
                condition=Q(until=None) & ~Q(mark=""),
                name="entry_by_its_mark",
            ),
            models.Index(fields=["list", "-id"], condition=Q(until=None), name="entry_that_stands"),
            models.Index(fields=["list", "since"], name="entry_by_version"),
            models.Index(
                fields=["list", "until"], condition=Q(until__isnull=False), name="entry_taken_off"
            ),
        ]

    def __str__(self) -> str:
        return self.shown


class ListChange(models.Model):
    """One version of a list: who made it, when, and how much came and went."""

    list = models.ForeignKey(
        NamedList, on_delete=models.CASCADE, related_name="changes", db_index=False
    )
    version = models.PositiveIntegerField()
    digest = models.CharField(max_length=64)
    by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+")
    at = models.DateTimeField(db_default=Now())
    note = models.TextField(blank=True)
    added = models.PositiveIntegerField()
    removed = models.PositiveIntegerField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["list", "version"], name="one_change_a_version"),
        ]

    def __str__(self) -> str:
        return f"{self.list_id} {self.version}"
