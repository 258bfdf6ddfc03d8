"""The idempotency key of an undo.

It is a pure function of what is undone and how: never of a primary key, a plan or a step, so that
it survives a new plan, and a restored database that has lost the row of the last try. The same undo
has the same key wherever it is made; only a named person who authorises one more try raises the
generation.
"""

from typing import Any

from connectors.canonical import digest

PREFIX = "amends-"


def of_undo(
    *,
    workspace: str,
    connection: str,
    operation: str,
    run: str,
    action: str,
    position: int,
    args: dict[str, Any],
    generation: int = 1,
) -> str:
    """The key under which this effect is undone; 71 characters."""
    return PREFIX + digest(
        {
            "workspace": workspace,
            "connection": connection,
            "operation": operation,
            "effect": [run, action, position],
            "args": args,
            "generation": generation,
        }
    )
