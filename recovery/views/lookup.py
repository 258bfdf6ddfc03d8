"""`x/<id>`: any id of the workspace leads to its page."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_GET

from approvals.models import Approval
from ledger import proofs
from ledger.models import Run
from recovery.models import Case, Cause, Correction
from recovery.views.request_context import queue_url
from workspaces.models import Workspace
from workspaces.pages import Request, is_number, page, workspace_or_404

# Jumping: any id of a workspace, pasted anywhere, leads to its page.

ID_CHARACTERS_MAX = 400
# A cause is named by the beginning of its fingerprint; fewer characters would fit many.
FINGERPRINT_CHARACTERS_MIN = 8


@dataclass(frozen=True, slots=True)
class Place:
    """Where an id leads, and what it is there."""

    kind: str
    name: str
    url: str


def places(workspace: Workspace, said: str) -> list[Place]:
    """Every page that `said` is the id of: none, one, or of a bare number several."""
    said = said.strip().strip("#")[:ID_CHARACTERS_MAX]
    if not said or "\0" in said:
        return []
    if is_number(said):
        return _numbered(workspace, int(said)) + _named(workspace, said)
    return _named(workspace, said)


def _numbered(workspace: Workspace, number: int) -> list[Place]:
    found = []
    case = Case.objects.filter(workspace=workspace, pk=number).first()
    if case is not None:
        url = reverse("recovery:case", args=[workspace.slug, number])
        found.append(Place("Case", case.headline, url))
    approval = Approval.objects.filter(workspace=workspace, pk=number).first()
    if approval is not None:
        url = reverse("approvals:card", args=[workspace.slug, number])
        found.append(Place("Approval", approval.headline, url))
    return found


def _named(workspace: Workspace, said: str) -> list[Place]:
    """A run's case before the run itself: whoever pastes a run's id has trouble with it."""
    slug = workspace.slug
    case = Case.objects.filter(workspace=workspace, run__run=said).first()
    if case is not None:
        return [Place("Case", case.headline, reverse("recovery:case", args=[slug, case.pk]))]
    if Run.objects.filter(workspace=workspace, run=said).exists():
        return [Place("Run", said, reverse("ledger:run", args=[slug, said]))]
    correction = Correction.objects.filter(workspace=workspace, reference=said.upper()).first()
    if correction is not None:
        url = reverse("recovery:correction", args=[slug, correction.pk])
        return [Place("Correction", correction.title, url)]
    if proofs.event_of(workspace, said) is not None:
        return [Place("Event", said, reverse("ledger:event", args=[slug, said]))]
    return _causes(workspace, said)


def _causes(workspace: Workspace, said: str) -> list[Place]:
    if len(said) < FINGERPRINT_CHARACTERS_MIN:
        return []
    alike = Cause.objects.filter(workspace=workspace, fingerprint__startswith=said.lower())
    return [
        Place("Cause", str(one), reverse("recovery:cause", args=[workspace.slug, one.fingerprint]))
        for one in alike[:2]
    ]


@login_required
@require_GET
def jump(request: Request, workspace: str, said: str) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    found = places(here, said)
    if len(found) == 1:
        return redirect(found[0].url)
    context = {"workspace": here, "said": said, "places": found, "queue_url": queue_url(here)}
    return page(request, "recovery/jump.html", context, status=200 if found else 404)
