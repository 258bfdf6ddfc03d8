"""Make a workspace, at the server, for somebody who has an account already."""

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.validators import validate_slug

from workspaces import entrance
from workspaces.free_text import InvalidInput, kept_text
from workspaces.management import person
from workspaces.models import Workspace

NAME_CHARACTERS_MAX = 120
SLUG_CHARACTERS_MAX = 50


class Command(BaseCommand):
    help = "Makes a workspace with its first teams and policy; its founder administers it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="as people read it")
        parser.add_argument("slug", help="as addresses have it: letters, digits, - and _")
        parser.add_argument("--founder", required=True, help="the address of who administers it")
        parser.add_argument(
            "--starter",
            choices=list(entrance.STARTERS),
            default=next(iter(entrance.STARTERS)),
            help="the policy that it starts with",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        slug = options["slug"]
        try:
            validate_slug(slug)
            name = kept_text(options["name"], NAME_CHARACTERS_MAX, asking="It needs a name.")
        except (ValidationError, InvalidInput) as wrong:
            raise CommandError(" ".join(getattr(wrong, "messages", [str(wrong)]))) from None
        if len(slug) > SLUG_CHARACTERS_MAX or Workspace.objects.filter(slug=slug).exists():
            raise CommandError(f"There is a workspace {slug} already, or the name is too long.")
        founder = person(options["founder"])
        made = entrance.open_workspace(name, slug, by=founder, starter=options["starter"])
        self.stdout.write(f"{made.name}: /w/{made.slug}/, administered by {founder.email}.")
