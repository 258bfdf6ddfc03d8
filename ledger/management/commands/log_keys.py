"""`manage.py log_keys`: the public keys of the logs, to be published outside the desk's pages."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from ledger import logkeys
from workspaces.models import Workspace


class Command(BaseCommand):
    help = "Print every public key that signed heads, the living one first."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("workspace", nargs="*", help="slugs; all workspaces if none is named")
        parser.add_argument("--rotate", action="store_true", help="sign with a new key from now on")

    def handle(self, *_: Any, rotate: bool, **options: Any) -> None:
        found = Workspace.objects.order_by("slug")
        if options["workspace"]:
            found = found.filter(slug__in=options["workspace"])
        for workspace in found:
            if rotate:
                logkeys.rotate(workspace, by=None)
            for key in logkeys.published(workspace):
                self.stdout.write(key)
