"""What commands share: which workspaces they are for, by their slugs; and those by which one is set
up. There the name alone lists, and a verb behind it does what a form of the pages does, through the
same function, as an act of the administrator named by `--by`.
"""

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, ClassVar

from django import forms
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder

from workspaces import exporting, formatting
from workspaces.access import NotAllowed, require
from workspaces.models import User, Workspace


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


class AdministratorCommand(BaseCommand):
    shown: ClassVar[Sequence[str]]
    """The columns of the list that people get; as JSON it has all of them."""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("slug", metavar="WORKSPACE", help="its short name")
        parser.add_argument("--json", action="store_true", help="the whole list, as JSON")

    def add_verb(
        self, verbs: Any, act: Callable[[Workspace, User, dict[str, Any]], None], words: str
    ) -> CommandParser:
        verb: CommandParser = verbs.add_parser(act.__name__, help=words, description=words)
        verb.add_argument("name", metavar="PREFIX" if act.__name__ == "revoke" else "NAME")
        verb.add_argument("--by", metavar="EMAIL", required=True, help="the administrator who acts")
        verb.set_defaults(act=act)
        return verb

    def table(self, here: Workspace) -> exporting.Table:
        raise NotImplementedError

    def handle(self, *_: Any, slug: str, **said: Any) -> None:
        here = workspace_named(slug)
        if "act" in said:
            by = person(said["by"])
            try:
                require(by, "administer", here)
            except NotAllowed as wrong:
                raise CommandError(f"{by.email} may not: {wrong}.") from None
            said["act"](here, by, said)
            return
        listed, columns = self.table(here)
        rows = [dict(zip(columns, row, strict=True)) for row in exporting.values(listed, columns)]
        if said["json"]:
            self.stdout.write(json.dumps(rows, cls=DjangoJSONEncoder, ensure_ascii=False, indent=1))
            return
        for row in [dict(zip(self.shown, self.shown, strict=True)), *rows]:
            self.stdout.write("\t".join(_told(row[name]) for name in self.shown))


def _told(value: Any) -> str:
    return formatting.absolute(value) if isinstance(value, datetime) else str(value or "-")


def person(address: str) -> User:
    found = User.objects.filter(email__iexact=address, is_active=True).first()
    if found is None:
        raise CommandError(f"Nobody here has the address {address}.")
    return found


def checked(form: forms.Form) -> dict[str, Any]:
    """What the page's own form makes of what was said; raises CommandError with what is wrong."""
    if not form.is_valid():
        wrong = (f"{name}: {' '.join(map(str, why))}" for name, why in form.errors.items())
        raise CommandError("\n".join(wrong))
    return form.cleaned_data


def compared(name: str, differing: Sequence[str]) -> str:
    """The sentence for what is there as it was said; raises CommandError where it is otherwise."""
    if differing:
        raise CommandError(f"{name} is there already, with another {', another '.join(differing)}.")
    return f"{name} is there already, as you say."
