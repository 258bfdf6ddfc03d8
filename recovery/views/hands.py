"""In whose hands a case is: claiming, handing it over with a note, putting it off."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from recovery.cases.lifecycle import REFUSALS
from recovery.casework import cases
from recovery.views import acts
from recovery.views.case import refused
from recovery.views.request_context import case_to_recover, case_url, seen_revision
from workspaces.pages import Request, is_number
from workspaces.written import InvalidInput


@login_required
@require_POST
def claim(request: Request, workspace: str, pk: int) -> HttpResponse:
    """Claim or release, as `act` says."""
    case = case_to_recover(request, workspace, pk)
    verb = cases.release if request.POST.get("act") == "release" else cases.claim
    try:
        verb(case, by=request.user, seen=seen_revision(request))
    except REFUSALS as refusal:
        messages.warning(request, str(refusal))
    return redirect(case_url(case))


@login_required
@require_POST
def hand_over(request: Request, workspace: str, pk: int) -> HttpResponse:
    """Into somebody's hands, with a note."""
    case = case_to_recover(request, workspace, pk)
    to = next((one for one in acts.colleagues(case) if str(one.pk) == request.POST.get("to")), None)
    try:
        if to is None:
            raise InvalidInput("Choose who takes it over.")
        note, seen = request.POST.get("note", ""), seen_revision(request)
        cases.hand_over(case, to=to, note=note, by=request.user, seen=seen)
    except REFUSALS as refusal:
        return refused(request, case, refusal, "note", asked="handing")
    messages.success(request, f"{to} has it now.")
    return redirect(case_url(case))


@login_required
@require_POST
def snooze(request: Request, workspace: str, pk: int) -> HttpResponse:
    """Out of the list of open cases for some hours; with none, back into it."""
    case = case_to_recover(request, workspace, pk)
    hours = int(request.POST["hours"]) if is_number(request.POST.get("hours", "")) else 0
    note, seen = request.POST.get("note", ""), seen_revision(request)
    try:
        cases.snooze(case, hours=hours, note=note, by=request.user, seen=seen)
    except REFUSALS as refusal:
        return refused(request, case, refusal, "note", asked="snooze")
    messages.success(request, "It comes back by itself." if hours else "It is back in the list.")
    return redirect(case_url(case))
