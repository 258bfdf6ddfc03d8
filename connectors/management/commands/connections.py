"""`manage.py connections WORKSPACE`: its connections, as the page *Connectors* has them."""

import json
import sys
from pathlib import Path
from typing import Any, cast

from django.core.management.base import CommandError, CommandParser

from connectors import accounts, connections, registry
from connectors.contract import Purpose
from connectors.forms import NewConnectionForm
from connectors.models import Connection
from connectors.views import EXPORTED, row_of
from workspaces import encryption, exporting
from workspaces.management import AdministratorCommand, checked, compared
from workspaces.models import User, Workspace

REFUSED = (
    connections.BadSettings, connections.OutOfDate, registry.UnknownConnector, encryption.TooLong,
)  # fmt: skip


class Command(AdministratorCommand):
    help = (
        "List the connections of a workspace; add one, set its credentials, disable or enable it."
        " The kinds of connectors that are installed are listed by `manage.py connectors`."
    )
    shown = ("name", "connector", "state", "last_ok_at")

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        verbs = parser.add_subparsers(metavar="[VERB]")
        words = "Add a connection; a second time sets the credentials that are missing, no others."
        add = self.add_verb(verbs, self.add, words)
        add.add_argument("--connector", metavar="KIND", required=True, help="such as smtp")
        words = "its settings as JSON; - is stdin"
        add.add_argument("--settings-file", metavar="FILE", required=True, help=words)
        renew = self.add_verb(verbs, self.credentials, "Set credentials; the old ones are gone.")
        words = 'JSON, {"observe": {…}, "compensate": {…}} or one of the two; - is stdin'
        add.add_argument("--credentials-file", metavar="FILE", help=words)
        renew.add_argument("--credentials-file", metavar="FILE", required=True, help=words)
        self.add_verb(verbs, self.disable, "Let nothing be called over it any more.")
        self.add_verb(verbs, self.enable, "Let calls go over it again.")

    def handle(self, *words: Any, **said: Any) -> None:
        try:
            super().handle(*words, **said)
        except REFUSED as wrong:
            raise CommandError(str(wrong)) from None

    def table(self, here: Workspace) -> exporting.Table:
        columns = {one: EXPORTED[one] for one in EXPORTED if one not in {"version", "health"}}
        return list(Connection.objects.in_workspace(here)), {**columns, "state": _state}

    def add(self, here: Workspace, by: User, said: dict[str, Any]) -> None:
        name = checked(NewConnectionForm(said))["name"]
        kind, settings = said["connector"], _read(said["settings_file"])
        given = _credentials(said["credentials_file"])
        one = Connection.objects.in_workspace(here).filter(name=name).first()
        if one:
            self.stdout.write(compared(name, _differing(one, kind, settings, given)))
        else:
            for value in given.values():  # outside a transaction, for the system may be asked
                connections.check_credential(registry.get(kind), value)
            one = connections.create(here, name, kind, settings, by=by)
            self.stdout.write(f"{name} is made.")
        self._set(one, given, by)

    def credentials(self, here: Workspace, by: User, said: dict[str, Any]) -> None:
        self._set(_found(here, said), _credentials(said["credentials_file"]), by)

    def disable(self, here: Workspace, by: User, said: dict[str, Any]) -> None:
        connections.disable(_found(here, said), by=by)
        self.stdout.write(f"Nothing is called over {said['name']}.")

    def enable(self, here: Workspace, by: User, said: dict[str, Any]) -> None:
        connections.enable(_found(here, said), by=by)
        self.stdout.write(f"Calls go over {said['name']} again.")

    def _set(self, one: Connection, given: dict[Purpose, Any], by: User) -> None:
        for purpose, value in given.items():
            if _credential(one, purpose) != value:
                said = f"The credential to {purpose} is set."
                if connections.set_secret(one, purpose, value, by=by, revision=one.revision):
                    said += f" {accounts.counts_as(one, purpose)}"
                self.stdout.write(said)


def _credentials(path: str | None) -> dict[Purpose, Any]:
    found = _read(path) if path else {}
    if found.keys() - set(connections.PURPOSES):
        raise CommandError(f"{path} may hold {' and '.join(connections.PURPOSES)} alone.")
    return cast("dict[Purpose, Any]", found)


def _read(path: str) -> dict[str, Any]:
    """The JSON object in a file; what is wrong is told without a word of what stands there."""
    try:
        found = json.loads(sys.stdin.read() if path == "-" else Path(path).read_text("utf-8"))
    except (OSError, ValueError) as wrong:
        raise CommandError(f"{path} cannot be read as JSON: {wrong}") from None
    if not isinstance(found, dict):
        raise CommandError(f"{path} holds JSON that is no object.")
    return found


def _found(here: Workspace, said: dict[str, Any]) -> Connection:
    one = Connection.objects.in_workspace(here).filter(name=said["name"]).first()
    if one is None:
        raise CommandError(f"There is no connection “{said['name']}” in {here.name}.")
    return one


def _state(one: Connection) -> str:
    return str(row_of(one)["state"]) if one.connector in registry.names() else "not installed"


def _credential(one: Connection, purpose: Purpose) -> Any:
    """None where there is none, and {} where no key opens it any more."""
    secret = getattr(one, f"{purpose}_secret")
    try:
        return secret and secret.open()
    except encryption.CannotOpen:
        return {}


def _differing(
    one: Connection, kind: str, settings: dict[str, Any], given: dict[Purpose, Any]
) -> list[str]:
    """The names of what is otherwise than it is said; a credential that is missing is none."""
    if one.connector != kind:
        return ["connector"]
    was, now = (connections.with_defaults(kind, each) for each in (one.settings, settings))
    held = {each: _credential(one, each) for each in given}
    others = [each for each, value in held.items() if value is not None and value != given[each]]
    return [*connections.differing(was, now), *(f"credential to {each}" for each in others)]
