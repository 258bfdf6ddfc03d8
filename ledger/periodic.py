"""What the ledger does again and again."""

from ledger import audit, checks, desk_events, erasure, finding, partitions, retention, sealer
from workspaces.periodic import every

every(5, name="ledger.desk_events")(desk_events.take_in)
every(0.2, name="ledger.seal")(sealer.seal_all)
every(5, name="ledger.heads")(sealer.look_back)
every(2, name="ledger.words")(finding.catch_up)
every(3600, name="ledger.partitions")(partitions.make_ahead)
every(3600, name="ledger.guards")(checks.look)
every(300, name="ledger.audit")(audit.look)
every(2, name="ledger.erasure")(erasure.sweep)
every(3600, name="ledger.retention")(retention.keep_to_time)
