"""Approving for later: a yes with the moment before which the call is not made."""

from datetime import datetime, tzinfo

from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_POST

from approvals import inbox, not_before
from approvals.views import card
from workspaces import clock
from workspaces.pages import Request
from workspaces.written import InvalidInput


@login_required
@require_POST
def approve_later(request: Request, workspace: str, pk: int) -> HttpResponse:
    """Yes, and not before the moment that was typed, in the person's own time."""
    here, approval = card.to_decide(request, workspace, pk)
    posted = request.POST
    try:
        until = _moment(posted.get("not-before", ""), timezone.get_current_timezone())
        with transaction.atomic():
            inbox.as_shown(approval, posted.get("digest", ""))
            not_before.put_off(approval, until, by=request.user, now=clock.now())
            inbox.grant(
                approval,
                **card.answer_of(request, approval),
                login_at=card.login_at(request),
            )
    except card.REFUSALS as refusal:
        return card.refused(request, here, pk, refusal)
    return card.done_with(request, here, approval.pk)


def _moment(typed: str, zone: tzinfo) -> datetime:
    """The moment of a field for day and time. Raises InvalidInput where it is none."""
    try:
        found = datetime.fromisoformat(typed)
    except ValueError:
        raise InvalidInput("Not before: say a day and a time.") from None
    return found if found.tzinfo else found.replace(tzinfo=zone)
