"""Say, at the server, that a person counts: their address is theirs, or they need not wait."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from workspaces import independence
from workspaces.free_text import NOTE_CHARACTERS_MAX, InvalidInput, kept_text
from workspaces.management import workspace_named
from workspaces.models import User


class Command(BaseCommand):
    help = (
        "Records in the ledger that a member's address is theirs (--address), or that they count "
        "as a second pair of eyes without waiting for the probation's end (--at-once)."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("workspace", help="its slug")
        parser.add_argument("email", help="of the member")
        parser.add_argument("--address", action="store_true", help="the address is theirs")
        parser.add_argument("--at-once", action="store_true", help="they count from now on")
        parser.add_argument("--because", required=True, help="why; it stands in the ledger")

    def handle(self, *args: Any, **options: Any) -> None:
        workspace = workspace_named(options["workspace"])
        person = User.objects.filter(email__iexact=options["email"]).first()
        if person is None:
            raise CommandError(f"Nobody here has the address {options['email']}.")
        if not (options["address"] or options["at_once"]):
            raise CommandError("Say what for: --address, --at-once, or both.")
        try:
            because = kept_text(
                options["because"], NOTE_CHARACTERS_MAX, asking="Say why, with --because."
            )
            said = independence.vouch(
                workspace, person, because=because,
                address=options["address"], at_once=options["at_once"],
            )  # fmt: skip
        except (InvalidInput, independence.NothingToVouchFor) as nothing:
            raise CommandError(str(nothing)) from nothing
        self.stdout.write(f"{person.email} in {workspace.slug}: {', '.join(said)}. Recorded.")
