"""Stopping an agent from the case that shows why: this run, the agent, or the tool."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST

from approvals import pauses
from approvals.models import PauseKind
from ledger.models import Run
from recovery.cases.lifecycle import InvalidInput
from recovery.casework import cases
from recovery.models import Case
from recovery.views.request_context import case_or_404, case_url
from workspaces import formatting
from workspaces.access import may, require
from workspaces.models import User, Workspace
from workspaces.moves import CannotMove
from workspaces.pages import Request, page, workspace_to

# Saying of a run that it did wrong: an operator opens its case, or adds to it.


@login_required
@require_http_methods(["GET", "POST"])
def report(request: Request, workspace: str, run: str) -> HttpResponse:
    """GET asks what is wrong and writes nothing; POST leads to the case."""
    here = workspace_to("recover", request, workspace)
    found = Run.objects.select_related("agent").filter(workspace=here, run=run).first()
    if found is None:
        raise Http404("There is no such run here.")
    if request.method == "GET":
        return _show(request, here, found)
    try:
        case = cases.report(found, text=request.POST.get("why", ""), by=request.user)
    except InvalidInput as refusal:
        return _show(request, here, found, problem=str(refusal))
    messages.success(request, "Written down, in your name. This is its case.")
    return redirect(case_url(case))


def _show(request: Request, here: Workspace, run: Run, *, problem: str = "") -> HttpResponse:
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
        "known": {"url": case_url(known), "headline": known.headline, "state": known.state}
        if known
        else None,
        "why": request.POST.get("why", ""),
        "problem": problem,
    }
    return page(request, "recovery/report_run.html", context, status=422 if problem else 200)


@login_required
@require_POST
def pause(request: Request, workspace: str, pk: int) -> HttpResponse:
    case = case_or_404(request, workspace, pk)
    require(request.user, "recover", case.workspace)
    kind, why = request.POST.get("kind", ""), request.POST.get("why", "")
    name = _names(case).get(kind)
    if name is None:
        messages.warning(request, "Nothing was stopped: it is not there any more.")
        return redirect(case_url(case))
    try:
        pauses.pause(case.workspace, kind, name, by=request.user, reason=why)
    except (ValueError, CannotMove) as refusal:
        messages.warning(request, f"Nothing was stopped: {refusal}")
    else:
        what = f"{PauseKind(kind).label} {formatting.named(name)}"
        messages.success(request, f"{what} is stopped until it is lifted.")
    return redirect(case_url(case))


def offered(case: Case, person: User) -> dict[str, Any] | None:
    """What can be stopped from here, for who may; the narrowest first."""
    if case.agent is None or not may(person, "recover", case.workspace):
        return None
    return {
        "url": f"{case_url(case)}pause/",
        "choices": [
            {"value": kind, "label": f"{PauseKind(kind).label} {formatting.named(name)}"}
            for kind, name in _names(case).items()
        ],
    }


def _names(case: Case) -> dict[str, str]:
    found = {
        PauseKind.RUN: case.run.run if case.run.state == "running" else "",
        PauseKind.AGENT: case.agent.name if case.agent else "",
        PauseKind.TOOL: case.failed_action.tool if case.failed_action else "",
    }
    return {str(kind): name for kind, name in found.items() if name}
