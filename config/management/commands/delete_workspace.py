"""Delete a workspace for good, and write the receipt (config/leaving.py)."""

import json
from pathlib import Path
from typing import Any, TextIO

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config import leaving
from config.backups import bar
from workspaces.management import workspace_named
from workspaces.models import Workspace


class Command(BaseCommand):
    help = "Deletes what a workspace holds; what stays, and the receipt: docs/keeping.md."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("workspace", help="its short name")
        parser.add_argument("--typed", required=True, help="its short name once more")
        parser.add_argument("--reason", required=True, help="kept for good; name nobody there")
        parser.add_argument("--receipt", required=True, type=Path, help="a file that is not there")

    def handle(
        self, *, workspace: str, typed: str, reason: str, receipt: Path, **options: Any
    ) -> None:
        here = workspace_named(workspace)
        said = "The receipt of its earlier deletion" if leaving.was_deleted(here) else "The receipt"
        try:
            with receipt.open("x") as file:
                self._delete(here, file, typed=typed, reason=reason)
        except (leaving.CannotDelete, OSError) as wrong:
            raise CommandError(str(wrong)) from wrong
        self.stdout.write(f"{said}: {receipt}")

    def _delete(self, here: Workspace, file: TextIO, *, typed: str, reason: str) -> None:
        """Where it breaks off no receipt is left behind, for the same command is to go on."""
        try:
            with bar(self.stderr) as progress:
                told = leaving.delete(here, typed=typed, reason=reason, progress=progress)
            json.dump(told, file, indent=1)
        except BaseException:
            Path(file.name).unlink()
            raise
