"""`manage.py rebuild`: fold every run anew out of its events."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from ledger.rebuild import rebuild
from workspaces.models import Workspace


class Command(BaseCommand):
    help = "Fold all runs, actions and effects anew out of the events."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("workspace", nargs="*", help="slugs; all workspaces if none is named")

    def handle(self, *_: Any, **options: Any) -> None:
        found = Workspace.objects.order_by("slug")
        if options["workspace"]:
            found = found.filter(slug__in=options["workspace"])
        for workspace in found:
            done = sum(rebuild(workspace.pk))
            self.stdout.write(f"{workspace.slug}: {done} runs")
