"""Stopping an agent from the case that shows why: this run, the agent, or the tool."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from approvals import pauses
from approvals.models import PauseKind
from recovery.models import Case
from recovery.views.here import case_or_404, case_url
from workspaces.access import may, require
from workspaces.models import User
from workspaces.moves import CannotMove
from workspaces.pages import Request


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
        messages.success(request, f"{PauseKind(kind).label} {name} is stopped until it is lifted.")
    return redirect(case_url(case))


def offered(case: Case, person: User) -> dict[str, Any] | None:
    """What can be stopped from here, for who may; the narrowest first."""
    if case.agent is None or not may(person, "recover", case.workspace):
        return None
    return {
        "url": f"{case_url(case)}pause/",
        "choices": [
            {"value": kind, "label": f"{PauseKind(kind).label} {name}"}
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
