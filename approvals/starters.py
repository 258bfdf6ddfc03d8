"""The policies that a new workspace starts with (workspaces/entrance.py names them).

Both ask people of a tool that nobody has listed: a name that an agent made up, or that only looks
like another, does not go on by its class alone.
"""

from django.dispatch import receiver

from approvals import versions
from workspaces.entrance import workspace_set_up
from workspaces.models import User, Workspace

ASKS = """\
# A tool that stands neither under `policies` nor under `tools` asks a person who may approve.
# List yours: https://cel.dev is for conditions, the page Tools shows what agents have called.
# Whoever owns an agent does not approve its calls. While you are alone, this lets you:
# selfApproval: true
unknownTools: ASK
"""
QUICK_START = """
policies:
  update_flight: {approval: AUTO, compensation: SNAPSHOT}   # the ten lines of the guide
  notes.write: {approval: AUTO}                             # the program that comes with a key
"""
SOURCES = {"quick-start": ASKS + QUICK_START, "ask-all": ASKS}


@receiver(workspace_set_up, dispatch_uid="approvals.starters")
def first_policy(
    sender: object, workspace: Workspace, by: User, starter: str, **more: object
) -> None:
    """Put the chosen policy in force, as the founder's own first version."""
    saved = versions.save(workspace, SOURCES[starter], by=by, note="To start with")
    versions.activate(saved, by=by)
