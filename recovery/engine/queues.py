"""Queues: each class of connectors has its own, so that a slow system holds up nobody else."""

from connectors import registry

ENGINE = "engine"
"""Where plans start and end, and where nothing is called."""


class Elsewhere(Exception):
    """We stopped because the next call belongs to another queue; go on there."""

    def __init__(self, queue: str) -> None:
        super().__init__(queue)
        self.queue = queue


def of_connector(name: str) -> str:
    """The queue of a connector; one that is not installed has none, so its plans end in ours."""
    return f"connector.{name}" if name in registry.registry().connectors else ENGINE


def stay(queue: str, connector: str) -> None:
    """Raise Elsewhere unless calls to this connector are made in this queue."""
    wanted = of_connector(connector)
    if wanted != queue:
        raise Elsewhere(wanted)
