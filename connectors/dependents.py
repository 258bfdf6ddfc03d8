"""Which tools stand on a connection: the floor that knows the policy says it here, by `tells`."""

from collections.abc import Callable, Iterable

from connectors.models import Connection

Dependents = Callable[[int, str], Iterable[str]]
"""Of a workspace and the name of a connection: the tools whose effects are undone over it."""

_known: list[Dependents] = []


def tells(dependents: Dependents) -> Dependents:
    _known.append(dependents)
    return dependents


def tools_of(connection: Connection) -> list[str]:
    """Globs of the tools that could not be undone without it, by name."""
    told = (dependents(connection.workspace_id, connection.name) for dependents in _known)
    return sorted({tool for tools in told for tool in tools})
