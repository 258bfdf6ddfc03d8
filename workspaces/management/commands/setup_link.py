"""Print the one-time link that makes the first administrator and workspace."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from workspaces import entrance


class Command(BaseCommand):
    help = "Prints a one-time link, good for a day, that makes the first administrator."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--if-needed", action="store_true", help="Print nothing where a workspace exists"
        )

    def handle(self, *args: Any, if_needed: bool = False, **options: Any) -> None:
        if if_needed and not entrance.needs_setup():
            return
        self.stdout.write(f"{settings.AMENDS_URL}/setup/{entrance.setup_link()}/")
