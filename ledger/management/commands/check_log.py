"""`manage.py check_log`: whether the ledger is still what was signed, from its first entry on."""

from typing import Any

from django.core.management.base import CommandError

from ledger import audit
from workspaces.management import WorkspacesCommand


class Command(WorkspacesCommand):
    help = "Check every entry, every node and every head of the logs; ends with 1 if one is not so."

    def handle(self, *_: Any, **options: Any) -> None:
        bad = 0
        for workspace in self.chosen(options):
            findings = audit.audit_all(workspace)
            if all(finding.ok or finding.name == audit.ONE_LOG for finding in findings):
                audit.all_is_well(workspace)
            for finding in findings:
                bad += not finding.ok
                mark = "ok  " if finding.ok else "BAD "
                self.stdout.write(f"{mark} {workspace.slug}: {finding.name}. {finding.words}")
        if bad:
            raise CommandError("Something was changed since it was signed.")
