"""Which tools stand on a connection: the floor that knows the policy says it here, by `tells`."""

from collections.abc import Callable
from typing import NamedTuple

from connectors.models import Connection


class Dependents(NamedTuple):
    """Globs of the tools that are undone over it, and of those of which it finds out by a probe
    what came of a call.
    """

    undone: frozenset[str] = frozenset()
    probed: frozenset[str] = frozenset()


Tells = Callable[[int, str], Dependents]
"""Of a workspace and the name of a connection."""

_known: list[Tells] = []


def tells(dependents: Tells) -> Tells:
    _known.append(dependents)
    return dependents


def dependents_of(connection: Connection) -> Dependents:
    told = [tells_of(connection.workspace_id, connection.name) for tells_of in _known]
    return Dependents(
        undone=frozenset().union(*(one.undone for one in told)),
        probed=frozenset().union(*(one.probed for one in told)),
    )
