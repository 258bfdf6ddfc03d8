"""A workspace for the replay of a recorded service desk: one agent, one database, one policy."""

from pathlib import Path

from approvals import versions
from connectors import connections
from connectors.models import Connection
from demo import places
from demo.recorded.desks import ServiceDesk
from workspaces import keys
from workspaces.models import Agent, Workspace

POLICIES = Path(__file__).parents[1] / "policies"


def prepare(desk: ServiceDesk, slug: str, *, policy: Path | None = None) -> str:
    """Make what is missing, activate the policy, and mint a key for the agent: its token."""
    workspace, _ = Workspace.objects.get_or_create(slug=slug, defaults={"name": desk.name})
    agent, _ = Agent.objects.get_or_create(
        workspace=workspace,
        name=desk.agent,
        defaults={"description": "Replays the recorded service desk"},
    )
    connect(workspace, desk)
    document = (policy or POLICIES / f"{desk.slug}.yaml").read_text(encoding="utf-8")
    versions.activate(versions.save(workspace, document, by=None, note="For the replay"), by=None)
    _, token = keys.create_key(agent, by=None, name="replay", trusted_runtime=True)
    return token


def connect(workspace: Workspace, desk: ServiceDesk) -> Connection:
    """The connection to the desk's database, which restores rows of its tables."""
    found = Connection.objects.filter(workspace=workspace, name=desk.slug).first()
    if found is not None:
        return found
    made = connections.create(
        workspace,
        desk.slug,
        "sql",
        places.outside_settings()
        | {
            "tables": {
                table.target_type: {"table": name, "key": ["world", "id"], "version": "version"}
                for name, table in desk.tables.items()
            }
        },
        by=None,
    )
    connections.set_secret(made, "observe", places.outside_login(), by=None)
    connections.set_secret(made, "compensate", places.outside_login(), by=None)
    return made
