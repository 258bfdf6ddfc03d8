"""What commands share: which workspaces they are for, by their slugs."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from workspaces.models import Workspace


def workspace_named(slug: str) -> Workspace:
    """Raises CommandError where there is none."""
    found = Workspace.objects.filter(slug=slug).first()
    if found is None:
        raise CommandError(f"There is no workspace “{slug}”.")
    return found


class WorkspacesCommand(BaseCommand):
    """A command over all workspaces or those named; one that does not exist stops it."""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("workspace", nargs="*", help="slugs; all workspaces if none is named")

    def chosen(self, options: dict[str, Any]) -> list[Workspace]:
        """By slug. Raises CommandError before anything is done."""
        slugs = set(options["workspace"])
        found = list(Workspace.objects.order_by("slug"))
        if unknown := slugs - {one.slug for one in found}:
            raise CommandError(f"There is no workspace {', '.join(sorted(unknown))}.")
        return [one for one in found if not slugs or one.slug in slugs]
