"""What the gate no longer believes where the database lacks what happened: after a restore from a
backup, and after a log that went back.

A grant that looks unused may have been used, and a call that is not known may have been made. So
people are asked anew, and in a run that lived then the gate answers `in_doubt` to what it does not
know (approvals/gate/decision_table.py).
"""

from datetime import UTC, datetime

from django.db.models import F, QuerySet

from approvals import approval_requests
from approvals.models import Approval, ApprovalState
from ledger.models import Run, RunState
from ledger.models.runs import BY_A_RESTORE

BATCH = 500


def void_grants(why: str, among: QuerySet[Approval] | None = None) -> int:
    """Each yes that was not used, of all or `among` some."""
    every = Approval.objects.all() if among is None else among
    rows = every.filter(state=ApprovalState.GRANTED).select_related("workspace")
    count = 0
    for approval in rows.order_by("pk").iterator(chunk_size=BATCH):
        approval_requests.void(approval, why=f"{why} Whether the grant was used is not known.")
        count += 1
    return count


def mark_runs(when: datetime, among: QuerySet[Run] | None = None) -> int:
    """Runs of agents that lived; those that recovery holds stay so: nothing begins in them."""
    every = Run.objects.all() if among is None else among
    living = every.filter(state=RunState.RUNNING, held_by="", agent__isnull=False)
    mark = f"{BY_A_RESTORE}{when.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return living.update(held_by=mark, revision=F("revision") + 1)
