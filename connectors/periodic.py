"""What this floor does again and again."""

from connectors import calllog, channels, feeds
from workspaces.periodic import every


@every(5, name="connectors.send")
def send() -> None:
    channels.send_due()


@every(600, name="connectors.prune_calls")
def prune_calls() -> None:
    calllog.prune()


@every(60, name="connectors.heads")
def send_heads() -> None:
    channels.send_heads()


@every(5, name="connectors.feeds")
def send_feeds() -> None:
    feeds.send_all()


@every(3600, name="connectors.forget_messages")
def forget_messages() -> None:
    channels.forget_old()
