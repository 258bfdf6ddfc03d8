"""Bring a desk back from a backup, into an empty database, and hold everything (config/backups.py).

No process of ours starts on that database before the last step is done.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections, transaction
from django.db.migrations.loader import MigrationLoader
from psycopg.conninfo import conninfo_to_dict

from config import backups, object_storage, sealed
from config.backups import CannotRestore, SavedHead, bar
from edge import sockets
from ledger import merkle, partitions, rights, sealer
from ledger.partitions import owner_alias
from recovery import restoration
from workspaces.models import Workspace

UNMARK = "DROP SCHEMA amends_restore CASCADE"
OF_ANOTHER = (
    "In this database the restore of the backup of {:%d %B %Y, %H:%M:%S} UTC was begun and did not"
    " end. Run this with that backup, or make a new database for another one."
)
OF_NONE = (
    "{} signed entries of a log of which the backup knows nothing: its workspace was made later, or"
    " the log began anew"
)

CLOSED = (
    "No key of AMENDS_SECRET_KEYS opens what workspaces of the backup record with ({}). Put the key"
    " back that was in use then, and run this again. Where it is lost for good, run"
    " `manage.py replace_lost_keys --for-good` before (docs/running.md, “Backup and restore”)."
)
UNKNOWN = "no head of {} as new as the backup is kept outside, so what is missing is not known"


class Command(BaseCommand):
    help = "Restores the backup in SOURCE into the empty database of DATABASE_OWNER_URL."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "source", metavar="SOURCE", help="what `backup` has written: a folder, or s3://…"
        )
        parser.add_argument(
            "--identity", type=Path, required=True, help="the file with the private key"
        )

    def handle(self, *, source: str, identity: Path, **options: Any) -> None:
        url = settings.DATABASE_OWNER_URL
        try:
            ids = backups.identities(identity)
            with bar(self.stderr) as progress, here(source, progress) as folder:
                note, contents = backups.look(folder, ids, progress)
                refuse_what_is_newer(contents)
                if not is_loaded(url, note):
                    backups.load(url, folder, note.taken_at, ids, progress)
                progress("migrating and holding", 0.9)
                held, lost = finish(note, contents)
        except (CannotRestore, backups.ProgramFailed, psycopg.Error) as wrong:
            raise CommandError(str(wrong)) from wrong
        self.report(note, held, lost)

    def report(
        self, note: backups.BackupManifest, held: dict[str, int], lost: dict[str, list[str]]
    ) -> None:
        when = note.taken_at.astimezone(UTC)
        lines = [f"Restored from the backup of {when:%d %B %Y, %H:%M:%S} UTC.", ""]
        lines += [f"{count:>8} {what}" for what, count in held.items()]
        lines += ["", "Compared with the heads that were kept outside (AMENDS_HEADS_FOLDER):"]
        lines += [f"  {slug}: {words}" for slug, all_ in sorted(lost.items()) for words in all_]
        if not lost:
            lines.append("  nothing newer than the backup was found there.")
        self.stdout.write("\n".join(lines))
        self.stdout.write(
            "\nBefore an administrator lifts the pauses: end agents that began later, since the"
            " desk does not know their runs; take back keys, accesses and erasures that were"
            " ordered later once more, set pauses and the policy of later again (docs/running.md,"
            " “Backup and restore”)."
        )


@contextmanager
def here(source: str, progress: backups.Progress) -> Iterator[Path]:
    """The backup's folder on this machine; one that lies elsewhere is fetched for as long."""
    place = object_storage.place_of(source)
    if place is None:
        yield Path(source)
        return
    with TemporaryDirectory(prefix="amends-restore-") as folder:
        object_storage.fetch(place, Path(folder), progress)
        yield Path(folder)


def has_tables(url: str) -> bool:
    with psycopg.connect(sockets.postgres(url), autocommit=True) as connection:
        return bool(connection.execute(backups.TABLES).fetchall())


def is_loaded(url: str, note: backups.BackupManifest) -> bool:
    """Whether a restore of this very backup was begun here, and broke off after its tables. Raises
    CannotRestore where it was of another one.
    """
    begun = backups.half_restored(url) if has_tables(url) else None
    if begun is not None and begun != note.taken_at:
        raise CannotRestore(OF_ANOTHER.format(begun.astimezone(UTC)))
    return begun is not None


def refuse_what_is_newer(contents: backups.Contents) -> None:
    known = set(MigrationLoader(None, ignore_no_migrations=True).disk_migrations)
    replaced = {
        name
        for migration in MigrationLoader(None).disk_migrations.values()
        for name in migration.replaces
    }
    unknown = [name for name in contents.migrations if tuple(name) not in known | replaced]
    if unknown:
        app, name = unknown[0]
        raise CannotRestore(
            f"The backup is of a newer version: this one does not know {app}.{name}"
            f" (and {len(unknown) - 1} more). Restore it with the version that wrote it, or newer."
        )


def finish(note: backups.BackupManifest, contents: backups.Contents) -> tuple[dict[str, int], Any]:
    """Migrate, give the runtime its rights, hold everything, and take the mark away. Where this
    ends early the mark stands, and `restore` goes on from here.
    """
    alias = owner_alias()
    call_command("migrate", database=alias, interactive=False, verbosity=0)
    partitions.make_ahead()
    role = conninfo_to_dict(settings.DATABASE_URL).get("user")
    lost = missing(contents.heads)
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        if alias != "default" and role:
            rights.grant(cursor, str(role))
    if closed := [one.slug for one in Workspace.objects.order_by("pk") if sealed.lost_keys(one)]:
        raise CannotRestore(CLOSED.format(", ".join(closed)))
    with transaction.atomic():
        held = restoration.hold_everything(note.taken_at, lost)
    sealer.seal_all()  # where a newer head is kept outside, the log begins anew after the last good
    with connections[alias].cursor() as cursor:
        cursor.execute(UNMARK)
    return dict(held), lost


def missing(heads: list[SavedHead]) -> dict[str, list[str]]:
    """Of each workspace, in words, what heads outside the database know and the backup does not;
    of a log that is not in the backup, by the name of the log.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for head in heads:
        kept = sealer.remembered(head.origin)
        if kept is None or kept.size < head.size:
            words = UNKNOWN.format(head.origin)
        elif kept.size > head.size:
            words = f"{kept.size - head.size} signed entries of {head.origin} are missing"
        elif kept.size == head.size and merkle.base64_text(kept.root) != head.root.strip():
            words = f"{head.origin} was rewritten"
        else:
            continue
        found[head.workspace].append(words)
    of_the_backup = {head.origin for head in heads}
    for kept in sealer.all_remembered():
        if kept.origin not in of_the_backup:
            found[kept.origin].append(OF_NONE.format(kept.size))
    return dict(found)
