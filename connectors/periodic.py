"""What this floor does again and again."""

from connectors import calllog, channels, feeds
from workspaces.periodic import every

every(5, name="connectors.send")(channels.send_due)
every(600, name="connectors.prune_calls")(calllog.prune)
every(60, name="connectors.heads")(feeds.send_heads)
every(5, name="connectors.feeds")(feeds.send_all)
every(3600, name="connectors.forget_messages")(channels.forget_old)
