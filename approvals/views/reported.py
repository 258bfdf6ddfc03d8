"""What the gate would have asked for, of runs that were imported past it."""

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET

from approvals import reported
from approvals.policy import active
from approvals.views.lists import zone_of
from workspaces import formatting
from workspaces.pages import Request, page, workspace_or_404


@login_required
@require_GET
def would_have_asked(request: Request, workspace: str) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    zone = zone_of(request.user)
    found = reported.would_have_asked(here, active(here))
    rows = [
        {
            "line": one,
            "url": reverse("ledger:run", args=[here.slug, one.run]),
            "at": formatting.moment(one.at, "ago", zone) if one.at else "",
        }
        for one in found.rows
    ]
    empty = {
        "icon": "tool",
        "title": "Nothing would have been asked.",
        "text": "Here stand calls of imported runs for which the policy asks people, or which it"
        " denies.",
    }
    context = {"workspace": here, "rows": rows, "found": found, "empty": empty}
    return page(request, "approvals/reported.html", context)
