"""Who decides for whom: handing over one's right to decide, and ending that."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST

from workspaces import clock, delegations
from workspaces.delegations import Term
from workspaces.forms import DelegationForm
from workspaces.models import Delegation
from workspaces.pages import Request, workspace_or_404, workspace_to
from workspaces.views import members
from workspaces.written import InvalidInput


@login_required
@require_POST
def give(request: Request, workspace: str) -> HttpResponse:
    here = workspace_to("approve", request, workspace)
    form = DelegationForm(request.POST, workspace=here, person=request.user)
    if form.is_valid():
        said = form.cleaned_data
        term = Term(said["starts_at"] or clock.now(), said["until"])
        try:
            row = delegations.give(
                here, by=request.user, to=said["to"], team=said["team"], term=term,
                reason=said["reason"],
            )  # fmt: skip
        except InvalidInput as wrong:
            form.add_error(None, str(wrong))
        else:
            messages.success(request, f"{row.delegate} decides for you.")
            return redirect("workspaces:members", workspace=here.slug)
    return members.shown(request, here, delegation=form)


@login_required
@require_POST
def revoke(request: Request, workspace: str, pk: int) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    row = get_object_or_404(
        Delegation.objects.select_related("workspace", "delegator", "delegate", "team"),
        pk=pk,
        workspace=here,
    )
    try:
        delegations.revoke(row, by=request.user)
    except delegations.NotYours as not_yours:
        raise PermissionDenied(str(not_yours)) from None
    messages.success(request, f"{row.delegate} no longer decides for {row.delegator}.")
    return redirect("workspaces:members", workspace=here.slug)
