"""`manage.py agents WORKSPACE`: agents and their keys, as the page *Agents and keys* has them."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from workspaces import clock, exporting, keys
from workspaces.access import may
from workspaces.forms import AgentForm, KeyForm
from workspaces.management import AdministratorCommand, checked, compared, person
from workspaces.models import APIKey, User, Workspace
from workspaces.views.keys import EXPORTED


class Command(AdministratorCommand):
    help = "List the agents of a workspace with their keys; add one, make a key or revoke one."
    shown = ("agent", "owner", "state", "prefix", "may", "created_at", "last_used_at", "key")

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        verbs = parser.add_subparsers(metavar="[VERB]")
        add = self.add_verb(verbs, self.add, "Add an agent; a second time changes nothing.")
        add.add_argument("--owner", metavar="EMAIL", help="who approves none of its calls; or --by")
        add.add_argument("--description", metavar="TEXT", help="what it does")
        words = "Make one more key of an agent; it is alone on stdout, and never shown again."
        key = self.add_verb(verbs, self.key, words)
        key.add_argument("--key-name", default="script", help="where it will be used")
        words = f"may be repeated; if left out: {', '.join(APIKey.OF_AGENTS)}"
        key.add_argument("--scope", action="append", choices=APIKey.SCOPES, help=words)
        key.add_argument("--trusted", action="store_true", help="a trusted runtime")
        key.add_argument("--days", type=int, metavar="NUMBER", help="until it expires")
        words = "Revoke the key with this prefix; a second time changes nothing."
        self.add_verb(verbs, self.revoke, words)

    def table(self, here: Workspace) -> exporting.Table:
        now = clock.now()
        found = here.agents.order_by("name").select_related("owner").prefetch_related("keys")
        listed = [key for one in found for key in one.keys.all() or [APIKey(agent=one)]]
        owner = {"owner": lambda key: key.agent.owner.email if key.agent.owner else ""}
        return listed, {**EXPORTED, **owner, "state": lambda key: _state(key, now)}

    def add(self, here: Workspace, by: User, said: dict[str, Any]) -> None:
        name, description = said["name"], said["description"]
        owner = person(said["owner"]) if said["owner"] else None
        if owner and not may(owner, "view", here):
            raise CommandError(f"{owner.email} is no member of {here.name}.")
        there = here.agents.filter(name=name).first()
        if there:
            asked = {"owner": owner, "description": description}
            differing = [one for one in asked if asked[one] not in {None, getattr(there, one)}]
            self.stdout.write(compared(name, differing))
        else:
            form = AgentForm({"name": name, "description": description or ""}, workspace=here)
            keys.create_agent(here, by=by, owner=owner or by, **checked(form))
            self.stdout.write(f"{name} is added. It needs a key next.")

    def key(self, here: Workspace, by: User, said: dict[str, Any]) -> None:
        agent = here.agents.filter(name=said["name"]).first()
        if agent is None:
            raise CommandError(f"There is no agent “{said['name']}” in {here.name}.")
        asked = {
            "agent": agent.pk,
            "name": said["key_name"],
            "scopes": said["scope"] or APIKey.OF_AGENTS,
            "trusted_runtime": said["trusted"],
            "days": said["days"],
        }
        form = KeyForm(asked, workspace=here)
        fields = checked(form)
        until = keys.in_days(fields.pop("days"))
        made, token = keys.create_key(by=by, expires_at=until, **fields)
        self.stdout.write(token)
        self.stderr.write(f"The key {made.prefix} of {agent} is made.", self.style.SUCCESS)

    def revoke(self, here: Workspace, by: User, said: dict[str, Any]) -> None:
        theirs = APIKey.objects.filter(workspace=here, prefix=said["name"])
        key = theirs.select_related("workspace", "agent").first()
        if key is None:
            raise CommandError(f"No agent of {here.name} has a key {said['name']}.")
        keys.revoke(key, by=by)
        self.stdout.write(f"The key {key.name} of {key.agent} is revoked.")


def _state(key: APIKey, now: Any) -> str:
    if not key.pk:
        return "without a key"
    is_over = key.expires_at is not None and key.expires_at <= now
    return "revoked" if key.revoked_at else "expired" if is_over else "active"
