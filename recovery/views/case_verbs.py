"""In whose hands a case is: claiming, handing it over with a note, putting it off; and saying of a
run that it did wrong, by which an operator opens its case or adds to it.
"""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from ledger.models import UNNAMED, Run
from recovery.cases.lifecycle import REFUSALS
from recovery.casework import cases
from recovery.models import Case
from recovery.views import acts
from recovery.views.case import refused
from recovery.views.request_context import case_to_recover, case_url, list_of, seen_revision
from workspaces import formatting
from workspaces.free_text import InvalidInput
from workspaces.models import Workspace
from workspaces.pages import Request, is_number, page, workspace_to


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
    kept = list_of(request)
    return redirect(f"{case_url(case)}?{kept}" if kept else case_url(case))


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


ACTIONS_BESIDE_MAX = 12


@login_required
@require_http_methods(["GET", "POST"])
def report(request: Request, workspace: str, run: str) -> HttpResponse:
    """GET asks what is wrong and writes nothing; POST leads to the case."""
    here = workspace_to("recover", request, workspace)
    found = Run.objects.select_related("agent").filter(workspace=here, run=run).first()
    if found is None:
        raise Http404("There is no such run here.")
    if request.method == "GET":
        return _show_report(request, here, found)
    try:
        case = cases.report(found, text=request.POST.get("why", ""), by=request.user)
    except REFUSALS as refusal:
        return _show_report(request, here, found, problem=str(refusal))
    messages.success(request, "Written down, in your name. This is its case.")
    return redirect(case_url(case))


def _show_report(request: Request, here: Workspace, run: Run, *, problem: str = "") -> HttpResponse:
    known = Case.objects.select_related("workspace").filter(run=run).first()
    context = {
        "workspace": here,
        "run": {
            "run": run.run,
            "url": reverse("ledger:run", args=[here.slug, run.run]),
            "request": run.request,
            "state": run.state,
            "agent": run.agent.name if run.agent else "the desk",
        },
        "did": [
            {
                "tool": one.tool or UNNAMED,
                "state": one.state,
                "at": formatting.moment(one.started_at, "clock"),
            }
            for one in run.actions.order_by("-first_place")[:ACTIONS_BESIDE_MAX]
        ],
        "known": {"url": case_url(known), "headline": known.headline, "state": known.state}
        if known
        else None,
        "why": request.POST.get("why", ""),
        "problem": problem,
    }
    return page(request, "recovery/report_run.html", context, status=422 if problem else 200)
