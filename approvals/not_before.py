"""Not before: a yes that is for later. The call is approved and waits until its moment has come.

Whoever says yes names the moment; where several do, the latest counts. It can only hold up what was
approved: the digest, the end and everybody's part stay as they are.
"""

from datetime import datetime

from django.db import transaction

from amends.protocol.vocabulary import EventType
from approvals.deciders import locked
from approvals.digests import record
from approvals.models import Approval, ApprovalState, SubjectKind
from workspaces.models import User
from workspaces.written import InvalidInput

ONLY_CALLS = "A moment is named for a call of an agent alone."
SIGNED = "Each yes is signed by its person, and what they sign names no moment."


def why_not(approval: Approval) -> str:
    """Why no moment can be named for it, in words; empty where one can."""
    if approval.subject_kind != SubjectKind.ACTION:
        return ONLY_CALLS
    return SIGNED if approval.signed else ""


def is_early(approval: Approval, now: datetime) -> bool:
    """Whether it was approved, and for later than now."""
    later = approval.not_before
    return approval.state == ApprovalState.GRANTED and later is not None and later > now


@transaction.atomic
def put_off(approval: Approval, until: datetime, *, by: User, now: datetime) -> Approval:
    """Let the call wait until then, once it is approved. Raises InvalidInput for a moment that is
    over, or after which nothing could be done any more.
    """
    row = locked(approval)
    if why := why_not(row):
        raise InvalidInput(why)
    if until <= now:
        raise InvalidInput("Not before: that moment is over.")
    if until >= row.expires_at:
        raise InvalidInput("Not before: the question expires before that moment.")
    latest = max(until, row.not_before or until)
    Approval.objects.filter(pk=row.pk).update(not_before=latest)
    record(row, EventType.APPROVAL_PUT_OFF, by=by, until=latest.isoformat())
    row.not_before = latest
    return row
