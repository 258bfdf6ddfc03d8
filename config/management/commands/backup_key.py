"""Make a key pair for backups. The desk needs the public half alone."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config import backups


class Command(BaseCommand):
    help = "Writes a new private key into FILE and prints what AMENDS_BACKUP_RECIPIENTS must say."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path, help="kept away from the desk")

    def handle(self, *, file: Path, **options: Any) -> None:
        private, public = backups.new_identity()
        try:
            with backups.new_file(file, mode=0o600) as out:
                out.write(f"# public key: {public}\n{private}\n")
        except OSError as error:
            raise CommandError(f"{file}: {error.strerror}. Nothing was written.") from error
        self.stdout.write(f"AMENDS_BACKUP_RECIPIENTS={public}")
        self.stderr.write(f"Without {file} no backup that is made for it can be read. Keep it.")
