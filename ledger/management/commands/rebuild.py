"""`manage.py rebuild`: fold every run anew out of its events."""

from typing import Any

from ledger.replaying import rebuild
from workspaces.management import WorkspacesCommand


class Command(WorkspacesCommand):
    help = "Fold all runs, actions and effects anew out of the events."

    def handle(self, *_: Any, **options: Any) -> None:
        for workspace in self.chosen(options):
            done = sum(rebuild(workspace.pk))
            self.stdout.write(f"{workspace.slug}: {done} runs")
