"""Breaking the glass: the part of the card, and the review on the page of the health."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST

from approvals import glass_decisions, inbox, signatures
from approvals.models import BrokenGlass
from approvals.views import card
from approvals.views.lists import approvals_of
from workspaces.pages import Request, workspace_or_404
from workspaces.written import InvalidInput


@login_required
@require_POST
def agree(request: Request, workspace: str, pk: int) -> HttpResponse:
    """Yes, as one of two in place of those who are asked."""
    here = workspace_or_404(request, workspace)
    approval = get_object_or_404(approvals_of(here), pk=pk)
    posted = request.POST
    try:
        glass_decisions.agree(
            approval,
            by=request.user,
            seen=posted.get("digest", ""),
            reason=posted.get("glass-reason", ""),
            shown=card.shown_of(request, approval),
            shown_seconds=card.shown_seconds(posted.get("shown", "")),
            login_at=card.login_at(request),
            signed=signatures.answered(posted.get("signature", "")),
        )
    except card.REFUSALS as refusal:
        return card.refused(request, here, pk, refusal)
    return card.done_with(request, here, pk)


@login_required
@require_POST
def review(request: Request, workspace: str, pk: int) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    rows = BrokenGlass.objects.select_related("approval__workspace", "workspace")
    glass = get_object_or_404(rows, approval=pk, workspace=here)
    try:
        glass_decisions.review(glass, by=request.user, text=request.POST.get("review", ""))
    except InvalidInput as wrong:
        messages.error(request, str(wrong))
    except inbox.NotYours as not_yours:
        raise PermissionDenied(str(not_yours)) from None
    else:
        messages.success(request, "Reviewed.")
    return redirect("approvals:health", workspace=here.slug)
