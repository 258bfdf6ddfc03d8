"""Delete a workspace for good, and write the receipt (config/leaving.py)."""

import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config import leaving
from config.backups import bar, new_file
from workspaces.management import workspace_named

WITHOUT_RECEIPT = (
    "It is deleted, but the receipt could not be written. The same command writes it, where it can:"
)


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
        told: dict[str, Any] = {}
        try:
            with new_file(receipt) as file:
                with bar(self.stderr) as progress:
                    told = leaving.delete(here, typed=typed, reason=reason, progress=progress)
                json.dump(told, file, indent=1)
        except leaving.CannotDelete as wrong:
            raise CommandError(str(wrong)) from wrong
        except OSError as wrong:
            raise CommandError(f"{WITHOUT_RECEIPT} {wrong}" if told else str(wrong)) from wrong
        self.stdout.write(f"{said}: {receipt}")
