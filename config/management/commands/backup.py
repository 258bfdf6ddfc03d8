"""Write an encrypted backup of the whole desk (config/backups.py)."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from psycopg import Error as DatabaseError

from config import backups
from config.backups import bar


class Command(BaseCommand):
    help = "Writes a consistent, encrypted backup into a new folder below DEST; the desk runs on."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("dest", metavar="DEST", type=Path, help="a folder, on another disk")

    def handle(self, *, dest: Path, **options: Any) -> None:
        try:
            keys = backups.recipients(settings.AMENDS_BACKUP_RECIPIENTS)
            with bar(self.stderr) as progress:
                folder = backups.take(settings.DATABASE_OWNER_URL, dest, keys, progress)
        except (backups.CannotBackUp, backups.ProgramFailed, DatabaseError) as wrong:
            raise CommandError(str(wrong)) from wrong
        size = sum(file.stat().st_size for file in folder.iterdir())
        self.stdout.write(f"{folder} ({size:,} bytes)".replace(",", " "))
