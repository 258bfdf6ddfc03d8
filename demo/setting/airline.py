"""A workspace for the replay of the airline desk: one agent, one database, one policy."""

from pathlib import Path

from approvals import versions
from connectors import connections
from connectors.models import Connection
from demo import places
from demo.airline import tables
from workspaces import keys
from workspaces.models import Agent, Workspace

POLICIES = Path(__file__).parents[1] / "policies"
AGENT = "airline-desk"


def prepare(slug: str, *, policy: Path | None = None) -> str:
    """Make what is missing, activate the policy, and mint a key for the agent: its token."""
    workspace, _ = Workspace.objects.get_or_create(slug=slug, defaults={"name": "Airline desk"})
    agent, _ = Agent.objects.get_or_create(
        workspace=workspace,
        name=AGENT,
        defaults={"description": "Replays the recorded service desk"},
    )
    connect(workspace)
    document = (policy or POLICIES / "airline.yaml").read_text(encoding="utf-8")
    versions.activate(versions.save(workspace, document, by=None, note="For the replay"), by=None)
    _, token = keys.create_key(agent, by=None, name="replay", trusted_runtime=True)
    return token


def connect(workspace: Workspace) -> Connection:
    """The connection to the airline's database, which restores rows of two tables."""
    found = Connection.objects.filter(workspace=workspace, name="airline").first()
    if found is not None:
        return found
    made = connections.create(
        workspace,
        "airline",
        "sql",
        places.outside_settings()
        | {
            "tables": {
                kind: {"table": table, "key": ["world", "id"], "version": "version"}
                for table, kind in tables.TARGET_TYPES.items()
            }
        },
        by=None,
    )
    connections.set_secret(made, "observe", places.outside_login(), by=None)
    connections.set_secret(made, "compensate", places.outside_login(), by=None)
    return made
