"""Load a policy document from a file, save it as a version and put it in force; or only say what it
would have said.
"""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from approvals import dry_run, versions
from approvals.policy import Invalid, PolicyUnreadable, active
from workspaces import formatting
from workspaces.free_text import InvalidInput
from workspaces.management import workspace_named
from workspaces.models import User, Workspace


class Command(BaseCommand):
    help = "Save a JSON or YAML policy as a new version of a workspace and put it in force."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("workspace", help="the workspace's slug")
        parser.add_argument("file", type=Path, help="the document, JSON or YAML")
        parser.add_argument("--by", metavar="EMAIL", help="the person who answers for it")
        parser.add_argument("--note", default="", help="why, in a sentence")
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="save nothing: say what it would have said of the last days, as the page does",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        workspace = workspace_named(options["workspace"])
        person = None
        if options["by"]:
            person = User.objects.filter(email=options["by"].lower()).first()
            if person is None:
                raise CommandError(f"There is no person {options['by']}.")
        try:
            source = options["file"].read_text(encoding="utf-8")
            if options["dry_run"]:
                self._rehearse(workspace, source)
                return
            with transaction.atomic():
                saved = versions.save(workspace, source, by=person, note=options["note"])
                version = versions.activate(saved, by=person)
        except (OSError, UnicodeDecodeError) as wrong:
            raise CommandError(f"{options['file']} cannot be read: {wrong}") from wrong
        except InvalidInput as wrong:
            raise CommandError(f"--note: {wrong}") from wrong
        except Invalid as wrong:
            lines = "\n".join(f"  {problem}" for problem in wrong.problems)
            raise CommandError(f"{options['file']} is no policy:\n{lines}") from wrong
        self.stdout.write(f"{version} is in force in {workspace.slug} ({version.digest[:12]}).")

    def _rehearse(self, workspace: Workspace, source: str) -> None:
        new = versions.check_new(workspace, source)
        try:
            found = dry_run.rehearse(workspace, new, active(workspace))
        except PolicyUnreadable as wrong:
            raise CommandError(f"The policy in force cannot be read: {wrong}") from wrong
        changed = [
            f"{formatting.named(one.tool)} in {formatting.named(one.run)}:"
            f" {one.was} becomes {one.becomes}. {one.why}"
            for one in found.examples
        ]
        for line in (found.words(), *found.cannot_run, *found.open_changes, *changed):
            self.stdout.write(formatting.plain(line))
        self.stdout.write("Nothing was saved.")
