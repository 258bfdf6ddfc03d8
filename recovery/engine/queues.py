"""Queues: each class of connectors has its own, so that a slow system holds up nobody else."""

from connectors import registry
from recovery.models import Step

ENGINE = "engine"
"""Where plans start and end, and where nothing is called."""


def of_connector(name: str) -> str:
    """The queue of a connector; one that is not installed has none, so its plans end in ours."""
    return f"connector.{name}" if name in registry.registry().connectors else ENGINE


def of_plan(plan_id: int) -> str:
    """Where a plan's first call is made: it may start there, too, which saves a message."""
    steps = Step.objects.filter(plan=plan_id).order_by("position")
    connector = steps.values_list("connection__connector", flat=True).first()
    return ENGINE if connector is None else of_connector(connector)


def connector_of(queue: str) -> str:
    """The connector whose queue it is."""
    return queue.removeprefix("connector.")


def elsewhere(queue: str, connector: str) -> str:
    """The queue in which calls to this connector are made, if it is another one than ours."""
    wanted = of_connector(connector)
    return "" if not queue or wanted == queue else wanted
