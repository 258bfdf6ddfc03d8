"""Who works at the desk of a benchmark, and how they come in."""

from dataclasses import dataclass

from django.conf import settings
from django.test import Client

from workspaces import independence, keys, teams
from workspaces.access import Codename
from workspaces.models import Agent, Team, User, Workspace

AGENTS = (
    "airline-desk",
    "billing-bot",
    "crm-sync",
    "travel-concierge",
    "it-onboarding",
    "support-mail",
)
OPERATOR_MAY: tuple[Codename, ...] = ("view", "view_sensitive", "recover", "administer")


@dataclass(frozen=True, slots=True)
class Cast:
    """A workspace, Ada who works its queue, Ben who decides, and the agents with a key each."""

    workspace: Workspace
    ada: User
    ben: User
    agents: list[Agent]
    tokens: list[str]


def cast(slug: str = "bench") -> Cast:
    workspace = Workspace.objects.create(slug=slug, name="Bench")
    operators = teams.create(workspace, "operators", by=None, may=OPERATOR_MAY)
    approvers = teams.create(workspace, "approvers", by=None, may=("view", "approve"))
    ada, ben = _person("Ada", operators), _person("Ben", approvers)
    agents = [Agent.objects.create(workspace=workspace, name=name) for name in AGENTS]
    tokens = [keys.create_key(agent, by=None, name="bench")[1] for agent in agents]
    return Cast(workspace, ada, ben, agents, tokens)


def _person(name: str, team: Team) -> User:
    person = User.objects.create_user(
        f"{name.lower()}@{team.workspace.slug}.example.com", name=name
    )
    teams.add(team, person, by=None)
    independence.prove(person)
    return person


def cookie_of(person: User) -> str:
    """The Cookie header of a session that began just now, as after the log-in page."""
    client = Client()
    client.force_login(person, backend=settings.AUTHENTICATION_BACKENDS[0])
    name = settings.SESSION_COOKIE_NAME
    return f"{name}={client.cookies[name].value}"
