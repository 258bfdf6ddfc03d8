"""`x/<id>`: any id of the workspace leads to its page."""

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_GET

from recovery.search import jumping
from recovery.views.here import queue_url
from workspaces.pages import Request, page, workspace_or_404


@login_required
@require_GET
def jump(request: Request, workspace: str, said: str) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    found = jumping.places(here, said)
    if len(found) == 1:
        return redirect(found[0].url)
    context = {"workspace": here, "said": said, "places": found, "queue_url": queue_url(here)}
    return page(request, "recovery/jump.html", context, status=200 if found else 404)
