"""`manage.py check_log`: whether the ledger is still what was signed, from its first entry on."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ledger import audit
from workspaces.models import Workspace


class Command(BaseCommand):
    help = "Check every entry, every node and every head of the logs; ends with 1 if one is not so."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("workspace", nargs="*", help="slugs; all workspaces if none is named")

    def handle(self, *_: Any, **options: Any) -> None:
        found = Workspace.objects.order_by("slug")
        if options["workspace"]:
            found = found.filter(slug__in=options["workspace"])
        bad = 0
        for workspace in found:
            for finding in audit.audit_all(workspace):
                bad += not finding.ok
                mark = "ok  " if finding.ok else "BAD "
                self.stdout.write(f"{mark} {workspace.slug}: {finding.name}. {finding.words}")
        if bad:
            raise CommandError("Something was changed since it was signed.")
