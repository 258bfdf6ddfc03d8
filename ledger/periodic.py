"""What the ledger does again and again."""

from ledger import audit, checks, desk_events, erasure, finding, partitions, retention, sealer
from workspaces.periodic import every


@every(5, name="ledger.desk_events")
def take_in_acts() -> None:
    desk_events.take_in()


@every(0.2, name="ledger.seal")
def seal_what_waits() -> int:
    return sealer.seal_all()


@every(5, name="ledger.heads")
def notice_logs_that_went_back() -> int:
    return sealer.look_back()


@every(2, name="ledger.words")
def make_runs_findable() -> int:
    return finding.catch_up()


@every(3600, name="ledger.partitions")
def make_partitions_ahead() -> None:
    partitions.make_ahead()


@every(3600, name="ledger.guards")
def see_that_the_ledger_only_grows() -> None:
    checks.look()


@every(300, name="ledger.audit")
def see_that_the_log_is_what_was_signed() -> int:
    return audit.look()


@every(2, name="ledger.erasure")
def go_on_with_erasures() -> int:
    return erasure.sweep()


@every(3600, name="ledger.retention")
def let_go_what_is_over_its_time() -> None:
    retention.keep_to_time()
