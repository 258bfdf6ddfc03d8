"""Acts of people, told to the ledger durably."""

from typing import Any

from workspaces.models import Act, User, Workspace


def record(
    workspace: Workspace, kind: str, *, by: User | None, data: dict[str, Any] | None = None
) -> Act:
    """Write down what `by` did, in the transaction of the deed. Never put a secret in `data`."""
    return Act.objects.create(workspace=workspace, type=kind, person=by, data=data or {})
