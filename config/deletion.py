"""Deletion of a workspace: what was said and set up in it goes, the record that it was there stays.

Kept are the skeleton of the ledger (which type of event by whom and when, without what was said),
the log over it with its heads and public keys, and one last entry that says what was deleted. Its
proof is the receipt. The short name is not given out again, for it stands in the log's entries.

The door is shut first. Then each table goes by itself and stays gone, so a deletion that broke off
is begun again and goes on. It takes the owner's role.
"""

import secrets
from collections.abc import Iterator
from graphlib import TopologicalSorter
from typing import Any

from django.contrib.auth.models import Group
from django.db import connections, models, transaction
from django.db.models.functions import Now

from amends.protocol.vocabulary import EventType
from config.leaving import Progress, Table, tables
from connectors.models import Connection
from ledger import desk_events, erasure, logkeys, proofs, sealer
from ledger.models import Erasure, ErasureState, LogKey
from ledger.partitions import owner_alias
from recovery.models import Plan, PlanState, Step
from recovery.models.steps import HOLDS_TARGET
from workspaces.models import (
    Agent,
    APIKey,
    DirectoryToken,
    PersonToken,
    Secret,
    Team,
    Workspace,
    new_masking_key,
)

KEPT = frozenset({
    "ledger.Event", "ledger.EventKey", "ledger.Leaf", "ledger.TreeNode", "ledger.TreeHead",
    "ledger.LogKey", "ledger.Unsealed", "ledger.Erasure", "ledger.Thinning",
    "workspaces.Secret", "workspaces.Team", "workspaces.Agent", "approvals.GateKey",
})  # fmt: skip
"""What stays, and what `_end` sees to. A key at the gate goes by age alone: it guards against a
second effect, and its agent, of which only the name is left, stays as long."""

GOES_ON = (PlanState.STARTING, PlanState.RUNNING)

NAME = "Deleted workspace"
SEAL_TURNS_MAX = 10_000

NAMED_EVENTS = """
SELECT place, received_at, event_id FROM ledger_event
WHERE workspace_id = %s AND data IS NOT NULL LIMIT %s"""


class CannotDelete(Exception):
    """We stopped because something in it still goes on, or it was not named."""


def delete(workspace: Workspace, *, typed: str, reason: str, progress: Progress) -> dict[str, Any]:
    """See it through and return the receipt: a download that `amends verify` takes, with `keys`.

    Raises CannotDelete.
    """
    if typed != workspace.slug:
        raise CannotDelete(f"Type “{workspace.slug}”, the short name of the workspace.")
    _check_nothing_goes_on(workspace)
    _shut(workspace)
    _check_nothing_goes_on(workspace)  # what began meanwhile is seen through; nothing begins now
    rows: dict[str, int] = {}
    gone = list(_children_first())
    for done, table in enumerate(gone):
        label = table.model._meta.label
        progress(label, done / len(gone))
        if deleted := _delete_rows(workspace, table):
            rows[label] = deleted
    return _end(workspace, rows, reason)


def _check_nothing_goes_on(workspace: Workspace) -> None:
    """A stopped plan is in nobody's way, once nothing of it is on the wire."""
    running = Plan.objects.filter(workspace=workspace, state__in=GOES_ON)
    under_way = Step.objects.filter(workspace=workspace, state__in=HOLDS_TARGET)
    if running.exists() or under_way.exists():
        raise CannotDelete("A plan is running: stop it, or see it through.")


def _shut(workspace: Workspace) -> None:
    """Nobody comes in any more, neither person nor program, and nothing is sent."""
    with transaction.atomic():
        Connection.objects.filter(workspace=workspace, disabled_at=None).update(disabled_at=Now())
        for kind in (APIKey, DirectoryToken, PersonToken):
            kind.objects.filter(workspace=workspace, revoked_at=None).update(revoked_at=Now())
        groups = list(Team.objects.filter(workspace=workspace).values_list("group_id", flat=True))
        for group in Group.objects.filter(pk__in=groups):
            group.user_set.clear()


def _children_first() -> Iterator[Table]:
    """The tables that go, each before those to which its rows point."""
    known = {table.model: table for table in tables()}
    points_to = {
        model: {
            field.related_model
            for field in model._meta.concrete_fields
            if isinstance(field, models.ForeignKey) and field.related_model is not model
        }
        & known.keys()
        for model in known
    }
    order = list(TopologicalSorter(points_to).static_order())
    return (known[model] for model in reversed(order) if model._meta.label not in KEPT)


def _delete_rows(workspace: Workspace, table: Table) -> int:
    alias = owner_alias()
    found = table.model._default_manager.using(alias).filter(**{table.path: workspace})
    with transaction.atomic(using=alias):
        meta = table.model._meta
        many: list[Any] = [field.remote_field.through for field in meta.local_many_to_many]
        named = {f"{meta.model_name}__in": found}
        for through in many:
            through.objects.using(alias).filter(**named).delete()
        deleted: int = found._raw_delete(alias)  # noqa: SLF001 - Django's own for what has no cascade
    return deleted


def _end(workspace: Workspace, rows: dict[str, int], reason: str) -> dict[str, Any]:
    """Empty the events, let go what only served people, and say so as the log's last entry."""
    _seal(workspace)
    emptied = _empty_events(workspace)
    alias = owner_alias()
    with transaction.atomic(using=alias):
        of_log = LogKey.objects.filter(workspace=workspace).values("secret")
        Secret.objects.using(alias).filter(workspace=workspace).exclude(pk__in=of_log).delete()
        teams = Team.objects.using(alias).filter(workspace=workspace)
        groups = list(teams.values_list("group_id", flat=True))
        teams.delete()
        Group.objects.using(alias).filter(pk__in=groups).delete()
        Agent.objects.using(alias).filter(workspace=workspace).update(owner=None, description="")
        Workspace.objects.using(alias).filter(pk=workspace.pk).update(
            name=NAME, founder=None, masking_key=new_masking_key()
        )
        Erasure.objects.using(alias).create(
            workspace=workspace, salt=secrets.token_bytes(erasure.SALT_BYTES), reason=reason,
            state=ErasureState.DONE, event_count=emptied, rows=rows,
        )  # fmt: skip
    told = {"deleted": {"rows": rows, "events": emptied}, "reason": reason}
    said = desk_events.record(workspace, EventType.WORKSPACE_CHANGED, data=told, part="deletion")
    _seal(workspace)
    receipt = proofs.download_of(workspace, said)
    if receipt is None:
        raise CannotDelete("All of it is deleted, and the receipt is not sealed yet: ask again.")
    return receipt | {"keys": [str(key) for key in logkeys.published(workspace)]}


def _seal(workspace: Workspace) -> None:
    for _ in range(SEAL_TURNS_MAX):
        if not sealer.seal(workspace):
            return


def _empty_events(workspace: Workspace) -> int:
    """Payload and salt of every event, in parts that stay done; how many there were."""
    alias, emptied = owner_alias(), 0
    while True:
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            cursor.execute(NAMED_EVENTS, [workspace.pk, erasure.EVENTS_AT_A_TIME])
            told = [(*row, []) for row in cursor.fetchall()]
            if not told:
                return emptied
            cursor.execute(erasure.ERASING)
            emptied += erasure.empty_these(cursor, workspace.pk, told)
