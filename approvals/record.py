"""The record: what the ledger is told of an approval, in the gate's voice or a person's."""

from typing import Any

from approvals.models import Approval
from ledger import desk
from workspaces.models import User


def say(approval: Approval, event: str, /, *, by: User | None = None, **data: Any) -> None:
    """Tell of the approval in its run's story; call it in the transaction of the deed.

    Its number and digest are always said with `data`, so that whoever reads the event knows what
    was approved to the byte.
    """
    desk.say(
        approval.workspace,
        event,
        run=approval.run_ref,
        action=approval.action.action if approval.action else "",
        by=by,
        part="gate",
        data={"approval": approval.pk, "digest": approval.digest, **data},
    )
