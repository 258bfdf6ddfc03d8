"""Everything between an empty database and a desk that can be opened. Safe to repeat."""

import fcntl
import hashlib
import io
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.contrib.staticfiles import finders
from django.contrib.staticfiles.management.commands import collectstatic
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.migrations.executor import MigrationExecutor
from psycopg.conninfo import conninfo_to_dict

from config import pooling, single_sign_on
from config.backups import opened
from config.edge import HashedStorage
from config.local.places import local_home
from ledger import checks, rights, sealer
from ledger.partitions import owner_alias
from recovery.triage import advice
from workspaces import periodic
from workspaces.locks import StillLocked, patiently
from workspaces.models import Heartbeat

# The desk goes on meanwhile; whoever upgrades is told at last who holds what.
LOCKED_SECONDS_MAX = 600.0
LOOK_AGAIN_SECONDS = 2.0
FIRST_STEP = "Make the first account and workspace here (the link works once, for a day):\n"


class Command(BaseCommand):
    help = "Migrate, collect static files, then load the demo or print a set-up link."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--alone", action="store_true", help="No process of this desk runs anywhere."
        )
        parser.add_argument(
            "--static-alone", action="store_true", help="Collect static files, ask no server."
        )
        parser.add_argument(
            "--wait", type=float, default=0.0, metavar="SECONDS",
            help="How long to wait for a database that does not answer yet.",
        )  # fmt: skip

    def handle(
        self,
        *,
        alone: bool = False,
        static_alone: bool = False,
        wait: float = 0.0,
        **options: Any,
    ) -> None:
        if static_alone:
            collect_static(self.stderr.write)
            return
        try:
            self._await_databases(wait)
            patiently(owner_alias(), self._shape, seconds_max=LOCKED_SECONDS_MAX, what="prepare")
        except pooling.UnfitDatabase as unfit:
            raise CommandError(str(unfit)) from unfit
        except StillLocked as locked:
            raise CommandError(
                f"{locked}\nNothing is half done: end them, or come when it is quieter."
            ) from locked
        try:
            sealer.look_back()  # before anybody is let through over an older database
        except sealer.NotKept as full:
            raise CommandError(f"{full}. Make room there, then run this again.") from full
        advice.advise_all_anew()
        single_sign_on.seal_what_lies_open()
        collect_static(self.stderr.write)
        if alone:  # old signs of life would make /statusz speak of processes that ended
            Heartbeat.objects.exclude(pk__in=periodic.DONE).delete()
        said = io.StringIO()
        if settings.DEMO:
            call_command("load_demo", stdout=said)
        else:
            call_command("setup_link", if_needed=True, stdout=said)
        words = said.getvalue()
        self._tell(words if settings.DEMO or not words else FIRST_STEP + words, in_note=alone)

    def _await_databases(self, seconds: float) -> None:
        """Raises CommandError where one does not answer in that time, UnfitDatabase where it is
        not what the desk needs.
        """
        until = time.monotonic() + seconds
        named = {"DATABASE_URL": settings.DATABASE_URL}
        named["DATABASE_OWNER_URL"] = settings.DATABASE_OWNER_URL
        for name, url in named.items():
            while True:
                try:
                    pooling.check(url)
                    break
                except psycopg.OperationalError as error:
                    why = " ".join(str(error).split())
                    if time.monotonic() >= until:
                        raise CommandError(f"{name}: {why}") from error
                    self.stderr.write(f"Waiting for the database. {name}: {why}")
                time.sleep(LOOK_AGAIN_SECONDS)

    def _tell(self, words: str, *, in_note: bool) -> None:
        """To who called us; `make up` shows the note instead, once everything answers."""
        if not in_note:
            self.stdout.write(words)
            return
        note = local_home() / "greeting.txt"
        note.unlink(missing_ok=True)
        if words:
            note.touch(mode=0o600)
            note.write_text(words)

    def _shape(self) -> None:
        migrate(owner_alias())
        # Give the runtime's role its rights, and say what does not refuse changes.
        role = conninfo_to_dict(settings.DATABASE_URL).get("user")
        if owner_alias() != DEFAULT_DB_ALIAS and role:
            # In one transaction: who is at work meanwhile never finds itself without rights.
            alias = owner_alias()
            with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
                rights.grant(cursor, str(role))
        for message in checks.missing_guards():
            self.stderr.write(f"{message.msg} {message.hint}")


def migrate(database: str) -> None:
    """Migrate, if there is anything to do: asking first halves the time of a warm start."""
    executor = MigrationExecutor(connections[database])
    refuse_an_older_desk(executor)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        call_command("migrate", database=database, interactive=False, verbosity=0)


def refuse_an_older_desk(executor: MigrationExecutor) -> None:
    """Raises CommandError where some of the migrations that were squashed never ran.

    Django leaves a migration out that replaces others, if only some of these were applied, and
    would find nothing to do.
    """
    loader = executor.loader
    for app, name in loader.replacements:
        if (app, name) not in loader.graph.nodes:
            raise CommandError(
                f"The database was made by an older version, and {app}.{name} cannot bring it up to"
                " date. Run `manage.py prepare` of commit 4c5cddb first, then this again. Nothing"
                " was changed."
            )


COLLECTED, COLLECTING = ".collected", ".collecting"
"""In a folder of static files: of what they were collected, and what is being collected."""


def collect_static(tell: Callable[[str], object]) -> None:
    """Collect and compress, unless nothing changed since the last time; one at a time in a folder.
    CommandError where there is no room: then what was collected before is there as it was.
    """
    root, now = Path(settings.STATIC_ROOT), digest_of_sources()
    if not settings.HASHED_STATIC or is_collected(root, now):
        return
    try:
        root.mkdir(parents=True, exist_ok=True)
        with alone_in(root, tell):
            if not is_collected(root, now):
                _collect(root, now)
    except OSError as full:
        words = f"AMENDS_STATIC_ROOT: no files can be collected in {root}"
        raise CommandError(f"{words}: {full.strerror or full}.") from full


def is_collected(root: Path, digest: str) -> bool:
    stamp = root / COLLECTED
    return stamp.exists() and stamp.read_text() == digest


@contextmanager
def alone_in(root: Path, tell: Callable[[str], object]) -> Iterator[None]:
    """Wait until nobody else collects there: two at once would take each other's files for their
    own, and delete what is not among them. The lock ends with its process.
    """
    until = time.monotonic() + LOCKED_SECONDS_MAX
    with opened(root) as folder:
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise
                tell(f"Waiting for another prepare, which collects files in {root}.")
            except OSError:
                break  # a file system that locks no folders: as if there were nobody else
            time.sleep(LOOK_AGAIN_SECONDS)
        yield


def _collect(root: Path, digest: str) -> None:
    fresh, stamp = root / COLLECTING, root / COLLECTED
    try:
        shutil.rmtree(fresh, ignore_errors=True)  # of who was killed at it
        fresh.mkdir()
        collector = collectstatic.Command()
        collector.storage = HashedStorage(location=fresh)
        call_command(collector, interactive=False, verbosity=0)
        stamp.unlink(missing_ok=True)
        put_in_place(fresh, root)
        stamp.write_text(digest)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def put_in_place(fresh: Path, root: Path) -> None:
    """Move all files of one folder into another, and take out of that what is not among them. What
    tells which are which (staticfiles.json) is the last to come.
    """
    names = [path.relative_to(fresh) for path in fresh.rglob("*") if path.is_file()]
    for name in sorted(names, key=lambda name: name == Path("staticfiles.json")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (fresh / name).replace(root / name)
    for path in {path.relative_to(root) for path in root.rglob("*") if path.is_file()} - {*names}:
        (root / path).unlink()


def digest_of_sources() -> str:
    """Of names and contents, in the order of names: what an image's layers keep of files is neither
    their times nor their order, and a container may not be able to write.
    """
    found = [
        f"{name} {hashlib.sha256(Path(storage.path(name)).read_bytes()).hexdigest()}\n"
        for finder in finders.get_finders()
        for name, storage in finder.list(None)
    ]
    return hashlib.sha256("".join(sorted(found)).encode()).hexdigest()
