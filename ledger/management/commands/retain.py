"""`manage.py retain`: let go what is over its time, as the scheduler does every hour."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from ledger import retention
from workspaces.models import Workspace


class Command(BaseCommand):
    help = "Forget runs and drop events that are older than their workspace keeps them."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only say what would go")

    def handle(self, *_: Any, dry_run: bool, **options: Any) -> None:
        if dry_run:
            for workspace in Workspace.objects.order_by("slug"):
                found = retention.preview(workspace)
                self.stdout.write(
                    f"{workspace.slug}, {workspace.retention_days} days:"
                    f" {found.runs_forgotten} runs and {found.events} events are over their time"
                )
            return
        done = retention.keep_to_time()
        self.stdout.write(
            f"{done.runs_forgotten} runs forgotten, {done.runs_removed} removed,"
            f" {done.events} events let go, {done.rows} old ids and snapshots"
        )
        for name in done.put_off:
            self.stdout.write(f"{name} is in use and is thinned at the next turn")
