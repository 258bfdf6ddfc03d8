"""What this floor does again and again."""

from connectors import calllog, channels
from workspaces.periodic import every


@every(5, name="connectors.send")
def send() -> None:
    channels.send_due()


@every(600, name="connectors.prune_calls")
def prune_calls() -> None:
    calllog.prune()
