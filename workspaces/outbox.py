"""Acts of people, told to the ledger durably."""

from typing import Any

from django.db import DEFAULT_DB_ALIAS

from amends.protocol.vocabulary import EventType
from workspaces.models import Act, User, Workspace


def record(
    workspace: Workspace,
    kind: EventType,
    *,
    by: User | None,
    data: dict[str, Any] | None = None,
    using: str = DEFAULT_DB_ALIAS,
) -> Act:
    """Write down what `by` did, in the transaction of the act. Never put a secret in `data`.

    `using` names the connection of that transaction, where it is the owner's.
    """
    return Act.objects.using(using).create(
        workspace=workspace, type=kind, person=by, data=data or {}
    )
