"""Who works here, in which workspace, with which keys and secrets."""

from workspaces.models.acts import Act, Heartbeat
from workspaces.models.keys import Agent, APIKey, PersonToken
from workspaces.models.people import Invitation, Membership, SetupLink, Team, User
from workspaces.models.secrets import Secret
from workspaces.models.workspace import Workspace, WorkspaceGroupPermission

__all__ = [
    "APIKey",
    "Act",
    "Agent",
    "Heartbeat",
    "Invitation",
    "Membership",
    "PersonToken",
    "Secret",
    "SetupLink",
    "Team",
    "User",
    "Workspace",
    "WorkspaceGroupPermission",
]
