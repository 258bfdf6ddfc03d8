"""Leaving: everything of a workspace as files that are read without the desk, and its deletion.

An export is one folder (docs/keeping.md says what stands in each file): the whole log with its
newest signed head and public keys, which `amends verify FOLDER` checks offline; every table of ours
that has rows of the workspace, a line each; the snapshots that agents sent. It is read in one
snapshot of the database, and has its name only when it is whole.

What opens something elsewhere stays: credentials, keys, links, and with what masked values are
told apart. A new column of bytes is left out until somebody says that it may go.

Of a deletion there remain the skeleton of the ledger (which type of event by whom and when, without
what was said), the log over it with its heads and public keys, and one last entry that says what
was deleted. Its proof is the receipt. The short name is not given out again, for it stands in the
log's entries. The door is shut first. Then each table goes by itself and stays gone, so a deletion
that broke off is begun again and goes on. It takes the owner's role.
"""

import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import Group
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection, connections, models, transaction
from django.db.models.functions import Now

from amends.protocol.exports import HEAD, LOG, NOTE
from amends.protocol.vocabulary import EventType
from config import providers
from config.backups import MOMENT, MOMENT_GLOB, Progress, durably, new_folder
from connectors.models import Connection
from ledger import desk_events, entries, erasure, logkeys, proofs, sealer
from ledger.agent_keys import KEY_SECONDS_CACHED_MAX
from ledger.canonical import canonical
from ledger.models import Blob, Erasure, ErasureState, Event, LogKey
from ledger.partitions import owner_alias
from recovery.models import Plan, PlanState, Step
from recovery.models.plans import HOLDS_TARGET
from workspaces import clock
from workspaces.forms import WorkspaceForm
from workspaces.models import (
    Agent,
    APIKey,
    DirectoryToken,
    Invitation,
    LoginProvider,
    PersonToken,
    Secret,
    Team,
    User,
    Workspace,
    new_masking_key,
)

FORM = 1
KEYS, HEADS = "log.pub", "heads.ndjson"
PEOPLE, BLOBS = "people.ndjson", "blobs"
ROWS_AT_A_TIME = 2_000

NOT_EXPORTED = {
    "workspaces.User": "people.ndjson has those whom the rows name, without what lets them in",
    "workspaces.Secret": "credentials, sealed for this desk",
    "workspaces.SetupLink": "of the desk",
    "workspaces.Heartbeat": "of the desk",
    "ledger.Event": "in log.ndjson",
    "ledger.Leaf": "in log.ndjson",
    "ledger.TreeNode": "made anew from log.ndjson",
    "ledger.EventKey": "in log.ndjson",
    "ledger.EventConflict": "refused, and let go by age",
    "ledger.Unsealed": "empty when the sealer is done",
    "ledger.LogKey": "log.pub; the private half stays",
    "ledger.Blob": "a file each in blobs/",
    "approvals.GateKey": "what is being begun just now",
}
PLAIN_BYTES = {
    "ledger.TreeHead": {"root"},
    "ledger.Erasure": {"person_digest", "salt"},
    "recovery.Correction": {"facts_salt"},
}
"""Columns of bytes that open nothing; written in hex. All others are left out."""

OPENS_SOMETHING = {
    "workspaces.Invitation": {"digest"},
    "approvals.ConsentRequest": {"token_digest"},
    "recovery.Correction": {"token_digest"},
}

LINK = re.compile(r"https?://[^/\s]+/(?:c|ask|join|setup|summary/stop)/[^\s<>]*")
"""Pages of ours that open to whoever has their address."""


class CannotExport(Exception):
    """We stopped because there is nothing signed to take along, or the place is taken."""


class Table(NamedTuple):
    """A model with rows of workspaces, and the look-up that leads from it to one."""

    model: type[models.Model]
    path: str


def tables() -> list[Table]:
    """Every table of ours with rows of one workspace, exported or not; floors from below."""
    found = []
    for floor in settings.FLOORS:
        for model in apps.get_app_config(floor).get_models():
            path = _path(model)
            if path:
                found.append(Table(model, path))
    return found


def _path(model: type[models.Model], depth: int = 4) -> str:
    """By the rows on which its own depend, `agent__workspace`; empty if to no workspace."""
    ours = [
        field
        for field in model._meta.concrete_fields
        if isinstance(field, models.ForeignKey)
        and field.remote_field.on_delete in (models.CASCADE, models.PROTECT)
    ]
    for field in ours:
        if field.related_model is Workspace:
            return field.name
    if not depth:
        return ""
    within = [field for field in ours if field.remote_field.on_delete is models.CASCADE]
    paths = ((field.name, _path(field.related_model, depth - 1)) for field in within)
    return next((f"{name}__{path}" for name, path in paths if path), "")


def file_of(model: type[models.Model]) -> str:
    return f"{model._meta.label_lower}.ndjson"


def export(workspace: Workspace, destination: Path, progress: Progress) -> Path:
    """Write a new folder below `destination`; raises CannotExport, OSError."""
    moment = clock.now().strftime(MOMENT)
    folder = destination / f"{workspace.slug}-{moment}"
    with new_folder(folder, f"{workspace.slug}-{MOMENT_GLOB}") as partial:
        (partial / BLOBS).mkdir()
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            _write_all(workspace, partial, moment, progress)
    return folder


def _write_all(workspace: Workspace, folder: Path, moment: str, progress: Progress) -> None:
    head = proofs.newest_head(workspace)
    if head is None:
        raise CannotExport(f"Nothing of {workspace.slug} is sealed yet: is the scheduler running?")
    files = _Files(folder)
    files.write(HEAD, [head.note.encode()])
    files.write(KEYS, (f"{key}\n".encode() for key in logkeys.published(workspace)))
    files.write(LOG, _log(workspace, head.size, progress))
    known = [one for one in tables() if one.model._meta.label not in NOT_EXPORTED]
    people: set[int] = set()
    for done, table in enumerate(known):
        progress(file_of(table.model), 0.5 + 0.4 * done / len(known))
        files.write(file_of(table.model), _rows(table, workspace, people))
    files.write(PEOPLE, _people(people))
    progress(BLOBS, 0.95)
    for blob in Blob.objects.filter(workspace=workspace).iterator(chunk_size=20):
        if blob.content is not None:
            files.write(f"{BLOBS}/{blob.sha256}", [bytes(blob.content)])
    note = {
        "form": FORM, "workspace": workspace.slug, "name": workspace.name, "at": moment,
        "origin": head.origin, "size": head.size, "rows": files.lines, "files": files.digests,
    }  # fmt: skip
    durably(folder / NOTE, json.dumps(note, indent=1).encode())


class _Files:
    """What was written, by its name in the folder: its digest, and how many lines it has."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.digests: dict[str, str] = {}
        self.lines: dict[str, int] = {}

    def write(self, name: str, lines: Iterator[bytes] | list[bytes]) -> None:
        digest, count = hashlib.sha256(), 0
        with (self._folder / name).open("wb") as file:
            for line in lines:
                file.write(line)
                digest.update(line)
                count += 1
            file.flush()
            os.fsync(file.fileno())
        self.digests[name] = f"sha256:{digest.hexdigest()}"
        if name.endswith(".ndjson"):
            self.lines[name] = count


def _log(workspace: Workspace, size: int, progress: Progress) -> Iterator[bytes]:
    for entry in entries.between(workspace, 0, size):
        if entry.number % entries.ENTRIES_AT_A_TIME == 0:
            progress(LOG, 0.5 * entry.number / size)
        yield canonical(entries.exported(entry)) + b"\n"


def _rows(table: Table, workspace: Workspace, people: set[int]) -> Iterator[bytes]:
    meta = table.model._meta
    plain = PLAIN_BYTES.get(meta.label, set())
    left_out = OPENS_SOMETHING.get(meta.label, set())
    columns = [
        field
        for field in meta.concrete_fields
        if field.name not in left_out
        and (not isinstance(field, models.BinaryField) or field.name in plain)
        and not isinstance(field, models.CompositePrimaryKey)
    ]
    persons = [one.attname for one in columns if one.related_model is User]
    found = table.model._default_manager.filter(**{table.path: workspace})
    names = [field.attname for field in columns]
    for row in found.order_by("pk").values(*names).iterator(chunk_size=ROWS_AT_A_TIME):
        people.update(row[name] for name in persons if row[name] is not None)
        if meta.label == "connectors.Delivery":
            row["message"] = _without_links(row["message"])
        yield _line({name: _plain(value) for name, value in row.items()})


def _without_links(said: Any) -> Any:
    """A message without the links that open or end something, wherever in it they stand."""
    if isinstance(said, str):
        return LINK.sub("", said)
    if isinstance(said, dict):
        return {name: _without_links(value) for name, value in said.items()}
    return [_without_links(one) for one in said] if isinstance(said, list) else said


def _people(known: set[int]) -> Iterator[bytes]:
    """Those whom the rows name: by what they are called, and nothing that lets them in."""
    columns = ("id", "email", "name", "timezone", "is_active", "date_joined")
    for row in User.objects.filter(pk__in=known).order_by("pk").values(*columns):
        yield _line(row)


def _plain(value: Any) -> Any:
    return bytes(value).hex() if isinstance(value, bytes | memoryview) else value


def _line(row: dict[str, Any]) -> bytes:
    return json.dumps(row, cls=DjangoJSONEncoder, ensure_ascii=False).encode() + b"\n"


KEPT = frozenset({
    "ledger.Event", "ledger.EventKey", "ledger.Leaf", "ledger.TreeNode", "ledger.TreeHead",
    "ledger.LogKey", "ledger.Unsealed", "ledger.Erasure", "ledger.Thinning",
    "workspaces.Secret", "workspaces.Team", "workspaces.Agent", "approvals.GateKey",
})  # fmt: skip
"""What stays, and what `_end` sees to. A key at the gate goes by age alone: it guards against a
second effect, and its agent, of which only the name is left, stays as long."""

GOES_ON = (PlanState.STARTING, PlanState.RUNNING)

NAME = "Deleted workspace"
DELETION = "deletion of the workspace"
"""What the registry of erasures says of itself on the line of one."""
SEAL_TURNS_MAX = 10_000
LAST_ONES_SECONDS = KEY_SECONDS_CACHED_MAX + 0.5
"""A web process believes in a key for so long after it was taken back, and who was let in at last
has then said it: else it would stay.
"""

NAMED_EVENTS = """
SELECT place, received_at, event_id FROM ledger_event
WHERE workspace_id = %s AND data IS NOT NULL LIMIT %s"""


class CannotDelete(Exception):
    """We stopped because something in it still goes on, or it was not named."""


def delete(workspace: Workspace, *, typed: str, reason: str, progress: Progress) -> dict[str, Any]:
    """See it through and return the receipt: a download that `amends verify` takes, with `keys`;
    of one that was deleted before, its receipt once more.

    Raises CannotDelete.
    """
    if typed != workspace.slug:
        raise CannotDelete(f"Type “{workspace.slug}”, the short name of the workspace.")
    if before := was_deleted(workspace):
        return _receipt(workspace, before)
    if any(place.workspace == workspace.slug for place in providers.places()):
        raise CannotDelete("AMENDS_OIDC_TEAMS puts people into its teams: take them out there.")
    _check_nothing_goes_on(workspace)
    _shut(workspace)
    time.sleep(LAST_ONES_SECONDS)
    _check_nothing_goes_on(workspace)  # what began meanwhile is seen through; nothing begins now
    line = _line_of(workspace, reason)
    gone = list(_children_first())
    for done, table in enumerate(gone):
        progress(table.model._meta.label, done / len(gone))
        _delete_rows(workspace, table, line)
    return _end(workspace, line, reason)


def was_deleted(workspace: Workspace) -> str:
    """The event that says so; empty where it was not."""
    said = Event.objects.filter(
        workspace=workspace, type=EventType.WORKSPACE_CHANGED, data__has_key="deleted"
    )
    return said.values_list("event_id", flat=True).first() or ""


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
        LoginProvider.objects.filter(workspace=workspace, ended_at=None).update(ended_at=Now())
        open_ones = Invitation.objects.filter(workspace=workspace, accepted_at=None)
        open_ones.filter(withdrawn_at=None).update(withdrawn_at=Now())
    groups = list(Team.objects.filter(workspace=workspace).values_list("group_id", flat=True))
    for group in Group.objects.using(owner_alias()).filter(pk__in=groups):
        group.user_set.clear()


def _line_of(workspace: Workspace, reason: str) -> Erasure:
    """The line of the registry that accounts for all that goes, written with each part of it: who
    begins a deletion again goes on with the same one.
    """
    lines = Erasure.objects.using(owner_alias())
    begun = lines.filter(workspace=workspace, detail=DELETION).first()
    return begun or lines.create(
        workspace=workspace, salt=secrets.token_bytes(erasure.SALT_BYTES), reason=reason,
        state=ErasureState.DONE, detail=DELETION,
    )  # fmt: skip


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


def _delete_rows(workspace: Workspace, table: Table, line: Erasure) -> None:
    alias = owner_alias()
    found = table.model._default_manager.using(alias).filter(**{table.path: workspace})
    with transaction.atomic(using=alias):
        meta = table.model._meta
        many: list[Any] = [field.remote_field.through for field in meta.local_many_to_many]
        named = {f"{meta.model_name}__in": found}
        for through in many:
            through.objects.using(alias).filter(**named).delete()
        deleted: int = found._raw_delete(alias)  # noqa: SLF001 - Django's own for what has no cascade
        if deleted:
            line.rows[meta.label] = line.rows.get(meta.label, 0) + deleted
            line.save(update_fields=["rows"])


def _end(workspace: Workspace, line: Erasure, reason: str) -> dict[str, Any]:
    """Empty the events, let go what only served people, and say so as the log's last entry."""
    _seal(workspace)
    _empty_events(workspace, line)
    alias = owner_alias()
    with transaction.atomic(using=alias):
        of_log = LogKey.objects.filter(workspace=workspace).values("secret")
        Secret.objects.using(alias).filter(workspace=workspace).exclude(pk__in=of_log).delete()
        teams = Team.objects.using(alias).filter(workspace=workspace)
        groups = list(teams.values_list("group_id", flat=True))
        teams.delete()
        Group.objects.using(alias).filter(pk__in=groups).delete()
        Agent.objects.using(alias).filter(workspace=workspace).update(owner=None, description="")
        unset = Workspace()
        settings = {name: getattr(unset, name) for name in WorkspaceForm.Meta.fields}
        Workspace.objects.using(alias).filter(pk=workspace.pk).update(
            **settings | {"name": NAME, "founder": None, "masking_key": new_masking_key()}
        )
        line.reason = reason
        line.save(update_fields=["reason"])
    told = {"deleted": {"rows": line.rows, "events": line.event_count}, "reason": reason}
    said = desk_events.record(workspace, EventType.WORKSPACE_CHANGED, data=told, part="deletion")
    return _receipt(workspace, said)


def _receipt(workspace: Workspace, said: str) -> dict[str, Any]:
    _seal(workspace)
    receipt = proofs.download_of(workspace, said)
    if receipt is None:
        raise CannotDelete("All of it is deleted, and the receipt is not sealed yet: ask again.")
    return receipt | {"keys": [str(key) for key in logkeys.published(workspace)]}


def _seal(workspace: Workspace) -> None:
    for _ in range(SEAL_TURNS_MAX):
        if not sealer.seal(workspace):
            return


def _empty_events(workspace: Workspace, line: Erasure) -> None:
    """Payload and salt of every event, in parts that stay done, and are on their line with that:
    what is empty and nobody erased is a finding of the check of the log.
    """
    alias = owner_alias()
    while True:
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            cursor.execute(NAMED_EVENTS, [workspace.pk, erasure.EVENTS_AT_A_TIME])
            told = cursor.fetchall()
            if not told:
                return
            cursor.execute(erasure.ERASING)
            line.event_count += erasure.empty_these(cursor, workspace.pk, told)
            line.save(update_fields=["event_count"])
