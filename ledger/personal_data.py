"""What this floor holds of people, and which runs are still going on."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from ledger.models import Run, RunState
from workspaces.erasure_registry import OURS, drops, holds, keeps, of_runs, rests
from workspaces.models import Workspace

holds(
    "ledger.Run", "request", "goal", "customer", "customer_name", "on_behalf_of", "labels",
    "summary", "error", "cancelled_by", "reason", "search", rows=of_runs("pk"),
)  # fmt: skip
# Of somebody else's run the words are put together anew (ledger.finding), of what is left.
holds("ledger.Run", "search", rows=lambda scope: Q(pk__in=scope.touched), search_revision=0)
holds(
    "ledger.Checkpoint", "name", "state", "state_ref", "completed", "pending", "recovery_mode",
    "instructions", "summary", rows=of_runs("run"),
)  # fmt: skip
# A blank `before` must not read as "it was not there": then undoing would delete it.
holds(
    "ledger.Action", "targets", "args", "args_digest", "intent", "compensation", "before",
    "result", "error", "checks", rows=of_runs("run", "pk"),
)  # fmt: skip
holds("ledger.Attempt", "error", rows=of_runs("action__run", "action"))
holds(
    "ledger.Effect", "target_id", "before", "after", "summary", "affects",
    rows=of_runs("action__run", "action"), has_before=False, has_after=False,
)  # fmt: skip
drops(
    "ledger.TraceRoot",
    rows=lambda scope: Q(workspace=scope.workspace, run__in=scope.names),
)

keeps("ledger.Run", "run", "model", "trace", "failed_action", "resumed_from", "flags", "held_by",
      because=OURS)  # fmt: skip
keeps("ledger.Checkpoint", "event_id", because=OURS)
keeps("ledger.Action", "action", "tool", "saga", "op", "key", "settled_by", "flags",
      "current_attempt", because=f"{OURS}; the key guards against a second effect")  # fmt: skip
keeps("ledger.Attempt", "attempt", "retry", because=OURS)
keeps("ledger.Effect", "target_type", because=OURS)
keeps("ledger.Event", "event_id", "type", "run", "action", "trace", "actor", "key_prefix",
      "data", "salt", "digest", because="erased by the owner alone (ledger.erasure)")  # fmt: skip
keeps("ledger.EventKey", "event_id", "content", because="emptied with its event")
keeps("ledger.Blob", "sha256", "content", because="emptied with the events that name it")
keeps("ledger.EventConflict", "event_id", "content", "key_prefix",
      because="emptied with its event, and let go by age")  # fmt: skip
keeps("ledger.LogKey", "origin", "public_key", because=OURS)
keeps("ledger.Leaf", "hash", because=OURS)
keeps("ledger.TreeNode", "hash", because=OURS)
keeps("ledger.TreeHead", "origin", "root", "note", because=OURS)
keeps("ledger.Erasure", "person_digest", "salt", "reason", "rows", "state", "person", "named",
      "detail", because="the registry; whom and which runs, until it is done")  # fmt: skip
keeps("ledger.Thinning", "partition", because=OURS)
keeps("ledger.AuditRound", "wrong", because=OURS)
keeps("ledger.TraceRoot", "run", "span", "began", "ended", "error",
      because="of a run that is not here yet: told to it or let go within a day")  # fmt: skip


@rests
def alive(workspace: Workspace, runs: Sequence[int]) -> QuerySet[Any]:
    """A run whose agent may still come back to it."""
    running = Q(state=RunState.RUNNING) & Q(lease_until__gt=Now() - timedelta(days=1))
    found = Run.objects.filter(running, workspace=workspace, pk__in=runs)
    return found.values_list("pk", flat=True)
