"""Saying of a run that it did wrong: an operator opens its case, or adds to it."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from ledger.models import Run
from recovery.cases.lifecycle import REFUSALS
from recovery.casework import cases
from recovery.models import Case
from recovery.views.request_context import case_url
from workspaces import formatting
from workspaces.models import Workspace
from workspaces.pages import Request, page, workspace_to

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
            "url": f"/w/{here.slug}/runs/{run.run}/",
            "request": run.request,
            "state": run.state,
            "agent": run.agent.name if run.agent else "the desk",
        },
        "did": [
            {"tool": one.tool, "state": one.state, "at": formatting.moment(one.started_at, "clock")}
            for one in run.actions.order_by("-first_place")[:ACTIONS_BESIDE_MAX]
        ],
        "known": {"url": case_url(known), "headline": known.headline, "state": known.state}
        if known
        else None,
        "why": request.POST.get("why", ""),
        "problem": problem,
    }
    return page(request, "recovery/report_run.html", context, status=422 if problem else 200)
