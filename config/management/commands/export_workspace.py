"""Write everything of a workspace into files that are read without the desk (config/leaving.py)."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config import leaving
from config.backups import bar
from workspaces.management import workspace_named


class Command(BaseCommand):
    help = "Writes a workspace into a new folder below DEST, with its proofs; the desk runs on."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("workspace", help="its short name")
        parser.add_argument("dest", metavar="DEST", type=Path, help="a folder with room for it")

    def handle(self, *, workspace: str, dest: Path, **options: Any) -> None:
        here = workspace_named(workspace)
        try:
            with bar(self.stderr) as progress:
                folder = leaving.export(here, dest, progress)
        except (leaving.CannotExport, OSError) as wrong:
            raise CommandError(str(wrong)) from wrong
        self.stdout.write(f"{folder}")
        self.stdout.write(f"python -m amends verify {folder} --key {folder / leaving.KEYS}")
