"""The lock under which an approval is answered, asked about, expired or taken back."""

from approvals.models import Approval
from ledger.models import Run


def locked(approval: Approval) -> Approval:
    """The approval under a lock; its run first, for that is the order in which everybody locks."""
    runs = Run.objects.filter(workspace=approval.workspace_id, run=approval.run_ref)
    list(runs.select_for_update(no_key=True, of=("self",)).values_list("pk"))
    row: Approval = (
        Approval.objects.select_for_update(of=("self",))
        .select_related("workspace", "action")
        .get(pk=approval.pk)
    )
    return row
