"""Queues: each class of connectors has its own, so that a slow system holds up nobody else."""

from connectors import registry

ENGINE = "engine"
"""Where plans start and end, and where nothing is called."""


def of_connector(name: str) -> str:
    """The queue of a connector; one that is not installed has none, so its plans end in ours."""
    return f"connector.{name}" if name in registry.registry().connectors else ENGINE


def connector_of(queue: str) -> str:
    """The connector whose queue it is."""
    return queue.removeprefix("connector.")


def elsewhere(queue: str, connector: str) -> str:
    """The queue in which calls to this connector are made, if it is another one than ours."""
    wanted = of_connector(connector)
    return "" if not queue or wanted == queue else wanted
