"""Write an encrypted backup of the whole desk (config/backups.py)."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error as DjangoDatabaseError
from psycopg import Error as DatabaseError

from config import backups, object_storage
from config.backups import bar
from config.object_storage import StorageLocation
from workspaces import periodic


class Command(BaseCommand):
    help = "Writes a consistent, encrypted backup into a new folder below DEST; the desk runs on."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "dest", metavar="DEST", help="a folder, on another disk, or s3://BUCKET/PREFIX"
        )

    def handle(self, *, dest: str, **options: Any) -> None:
        place = object_storage.place_of(dest)
        try:
            keys = backups.recipients(settings.AMENDS_BACKUP_RECIPIENTS)
            with bar(self.stderr) as progress:
                where, size = (
                    self.carry(place, keys, progress)
                    if place
                    else self.take(Path(dest), keys, progress)
                )
        except (backups.CannotBackUp, backups.ProgramFailed, DatabaseError) as wrong:
            raise CommandError(str(wrong)) from wrong
        self.note(where)
        self.stdout.write(f"{where} ({size:,} bytes)".replace(",", " "))

    def note(self, where: Path | StorageLocation) -> None:
        """When the last good one was made; the backup is good whether this can be noted or not."""
        try:
            periodic.done(periodic.BACKUP)
        except DjangoDatabaseError as error:
            self.stderr.write(f"{where} is made, and could not be noted down: {error}")

    def take(self, dest: Path, keys: list[Any], progress: backups.Progress) -> tuple[Path, int]:
        folder = backups.take(settings.DATABASE_OWNER_URL, dest, keys, progress)
        return folder, sum(file.stat().st_size for file in folder.iterdir())

    def carry(
        self, to: StorageLocation, keys: list[Any], progress: backups.Progress
    ) -> tuple[StorageLocation, int]:
        with TemporaryDirectory(prefix="amends-backup-") as here:
            folder, size = self.take(Path(here), keys, progress)
            return object_storage.carry_over(folder, to, progress), size
