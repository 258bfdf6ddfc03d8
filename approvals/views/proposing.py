"""What the health page proposes of the policy: looked at with its dry run, saved as a version."""

from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from approvals import dry_run, proposals, versions
from approvals.policy import Invalid, Unreadable, active, load
from approvals.policy.reading import read
from approvals.proposals import TIGHTER, Proposal
from approvals.views import meanwhile
from ledger import disclosure
from workspaces.access import may, require
from workspaces.models import User, Workspace
from workspaces.pages import Request, page, workspace_or_404
from workspaces.written import NOTE_CHARACTERS_MAX


def of_workspace(here: Workspace, person: User) -> list[dict[str, Any]]:
    """For the health page of who may change the policy and sees payloads, out of which the limits
    are taken; nobody else is proposed anything.
    """
    if not may(person, "administer", here) or not disclosure.sees(person, here, deciding=True):
        return []
    try:
        found = proposals.of(here, active(here))
    except Unreadable:
        return []
    return [_row(here, one) for one in found]


def _row(here: Workspace, one: Proposal) -> dict[str, Any]:
    address = reverse("approvals:proposal", args=[here.slug])
    return {
        "words": one.words,
        "tighter": one.kind == TIGHTER,
        "url": f"{address}?{urlencode({'of': one.key})}",
    }


@login_required
@require_http_methods(["GET", "POST"])
def proposal(request: Request, workspace: str) -> HttpResponse:
    """One proposal with its dry run; saved it is a version, which a person puts in force."""
    here = workspace_or_404(request, workspace)
    require(request.user, "administer", here)
    if not disclosure.sees(request.user, here, deciding=True):
        raise Http404("What is proposed rests on arguments.")
    request.shows_a_call = True
    current = active(here)
    found = proposals.find(here, current, request.GET.get("of", ""))
    if found is None:
        raise Http404("This is no longer proposed: what it rested on has changed.")
    problem, other = "", None
    if request.method == "POST":
        try:
            note = found.words[:NOTE_CHARACTERS_MAX]
            seen = meanwhile.seen(request)
            version = versions.save(here, found.source, by=request.user, note=note, after=seen)
        except Invalid as wrong:
            problem = str(wrong)
        except versions.SavedMeanwhile as wrong:
            other = wrong.version
        else:
            return redirect("approvals:version", workspace=here.slug, number=version.number)
    context = {
        "workspace": here,
        "words": found.words,
        "tighter": found.kind == TIGHTER,
        "lost": found.lost,
        "diff": versions.diff(current.document, read(found.source).value),
        "rehearsal": dry_run.rehearse(here, load(found.source), current),
        "problem": {"tone": "bad", "title": "Nothing was saved.", "text": problem}
        if problem
        else None,
        "notice": meanwhile.notice(other) if other else None,
        "seen": meanwhile.newest(here),
    }
    status = 409 if other else 422 if problem else 200
    return page(request, "approvals/proposal.html", context, status=status)
