"""Leaving: everything of a workspace as files that are read without the desk, and its deletion.

An export is one folder (docs/keeping.md says what stands in each file): the whole log with its
newest signed head and public keys, which `amends verify FOLDER` checks offline; every table of ours
that has rows of the workspace, a line each; the snapshots that agents sent. It is read in one
snapshot of the database, and has its name only when it is whole.

What opens something elsewhere stays: credentials, keys, links, and with what masked values are
told apart. A new column of bytes is left out until somebody says that it may go.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from django.apps import apps
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection, models, transaction

from ledger import entries, logkeys, proofs
from ledger.canonical import canonical
from ledger.models import Blob
from workspaces import clock
from workspaces.models import User, Workspace

FORM = 1
NOTE, LOG, HEAD, KEYS, HEADS = "export.json", "log.ndjson", "head.txt", "log.pub", "heads.ndjson"
PEOPLE, BLOBS, PARTIAL = "people.ndjson", "blobs", ".partial"
MOMENT, MOMENT_GLOB = "%Y%m%dT%H%M%SZ", "[0-9]" * 8 + "T" + "[0-9]" * 6 + "Z"
"""In a folder's name; as a glob it fits no other workspace's, whose short name may go on as ours
does."""
ROWS_AT_A_TIME = 2_000

FLOORS = ("workspaces", "ledger", "connectors", "approvals", "recovery")
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

LINK = re.compile(r"https?://[^/]+/(?:c|ask|join|setup|summary/stop)/")
"""Pages of ours that open to whoever has their address."""

Progress = Callable[[str, float], None]


class CannotExport(Exception):
    """We stopped because there is nothing signed to take along, or the place is taken."""


class Table(NamedTuple):
    """A model with rows of workspaces, and the look-up that leads from it to one."""

    model: type[models.Model]
    path: str


def tables() -> list[Table]:
    """Every table of ours with rows of one workspace, exported or not; floors from below."""
    found = []
    for floor in FLOORS:
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
    partial = destination / f"{folder.name}{PARTIAL}"
    for left in destination.glob(f"{workspace.slug}-{MOMENT_GLOB}{PARTIAL}"):
        shutil.rmtree(left)  # of an export of this workspace that broke off
    destination.mkdir(parents=True, exist_ok=True)
    partial.mkdir(mode=0o700)
    (partial / BLOBS).mkdir()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        _write_all(workspace, partial, moment, progress)
    partial.rename(folder)
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
    (folder / NOTE).write_text(json.dumps(note, indent=1))


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
        if meta.label == "connectors.Delivery" and LINK.match(str(row["message"].get("url"))):
            row["message"]["url"] = ""
        yield _line({name: _plain(value) for name, value in row.items()})


def _people(known: set[int]) -> Iterator[bytes]:
    """Those whom the rows name: by what they are called, and nothing that lets them in."""
    columns = ("id", "email", "name", "timezone", "is_active", "date_joined")
    for row in User.objects.filter(pk__in=known).order_by("pk").values(*columns):
        yield _line(row)


def _plain(value: Any) -> Any:
    return bytes(value).hex() if isinstance(value, bytes | memoryview) else value


def _line(row: dict[str, Any]) -> bytes:
    return json.dumps(row, cls=DjangoJSONEncoder, ensure_ascii=False).encode() + b"\n"
