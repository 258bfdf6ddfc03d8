"""`manage.py erase WORKSPACE --person ID`: forget what was said of a person."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ledger import erasure
from workspaces.management import workspace_named


class Command(BaseCommand):
    help = "Erase a person's payloads, or those of runs; the log and its proofs stay valid."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("workspace", help="its slug")
        parser.add_argument("--person", default="", help="on_behalf_of.id of the affected person")
        parser.add_argument(
            "--run", action="append", default=[], help="a run's id; may be repeated"
        )
        parser.add_argument("--reason", default="", help="kept in the registry: no names, please")
        parser.add_argument("--yes", action="store_true", help="without it nothing is changed")

    def handle(self, *_: Any, **options: Any) -> None:
        workspace = workspace_named(options["workspace"])
        who = {"person": options["person"], "runs": options["run"]}
        if not options["yes"]:
            found = erasure.find(workspace, **who)
            runs, actions = len(found.scope.runs), len(found.scope.actions)
            busy = f" Still being worked on: {', '.join(found.blockers)}." if found.blockers else ""
            self.stdout.write(
                f"{runs} runs and {actions} actions of other runs would be erased for good."
                f"{busy} With --yes they are."
            )
            return
        try:
            done = erasure.erase(workspace, **who, by=None, reason=options["reason"])
        except (erasure.NothingFound, erasure.StillWorkedOn) as reason:
            raise CommandError(str(reason)) from reason
        self.stdout.write(
            f"Erasure {done.pk}: {done.run_count} runs, {done.event_count} events are empty."
        )
