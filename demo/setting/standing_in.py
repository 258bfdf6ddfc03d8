"""A scripted approver, for what a newcomer should find under way: it says so in its reason."""

import time

from django.db import close_old_connections

from approvals.gate import bounded_grants
from approvals.models import Approval, ApprovalState
from workspaces.models import User

WAIT_SECONDS_MAX = 60.0
REASON = "Scripted by the demo: vouchers after a long delay are usual"
TERMS = {"uses": "12", "hours": "48", "each": "7500", "sum": "60000", "target": "any"}


def allow_more(slug: str, tool: str, by: str) -> bool:
    """Wait until a call of this tool is asked about, and let it and the next ones like it pass."""
    person, end = User.objects.get(email__startswith=f"{by}@"), time.monotonic() + WAIT_SECONDS_MAX
    waiting = Approval.objects.filter(workspace__slug=slug, state=ApprovalState.WAITING)
    while time.monotonic() < end:
        asked = waiting.filter(calls__0__operation=tool).order_by("pk").first()
        if asked is not None:
            bounded_grants.approve_with_more(
                asked, by=person, seen=asked.digest, typed=TERMS, reason=REASON
            )
            close_old_connections()
            return True
        time.sleep(0.3)
    return False
