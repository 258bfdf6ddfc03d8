"""Saved views: keeping the query that is shown, and the list of what was kept."""

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from recovery import search
from recovery.models import SavedView
from recovery.search import saved
from recovery.views.request_context import queue_url
from workspaces.access import NotAllowed, may
from workspaces.models import User, Workspace
from workspaces.pages import Request, page, workspace_or_404


@login_required
@require_GET
def views(request: Request, workspace: str) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    return _show(request, here)


@login_required
@require_http_methods(["GET", "POST"])
def save(request: Request, workspace: str) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    said = request.POST
    if request.method == "GET":
        return _show(request, here, form={"query": request.GET.get("q", ""), "open": True})
    try:
        view = saved.save(
            here,
            by=request.user,
            name=said.get("name", ""),
            query=said.get("q", ""),
            shared="shared" in said,
        )
    except (saved.CannotSave, search.QueryError, NotAllowed) as refusal:
        form = {
            "query": said.get("q", ""),
            "name": said.get("name", ""),
            "shared": "shared" in said,
            "open": True,
            "error": str(refusal),
        }
        return _show(request, here, form=form)
    messages.success(request, f"“{view.name}” is kept.")
    return redirect(_url(here, view))


@login_required
@require_GET
def view(request: Request, workspace: str, slug: str) -> HttpResponse:
    """The queue as the view has it: an address that stays when its query is changed."""
    here = workspace_or_404(request, workspace)
    found = get_object_or_404(saved.visible_to(here, request.user), slug=slug)
    return redirect(_url(here, found))


@login_required
@require_POST
def remove(request: Request, workspace: str, slug: str) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    found = get_object_or_404(saved.visible_to(here, request.user), slug=slug)
    if not saved.may_remove(found, request.user):
        raise NotAllowed("administer", here)
    found.delete()
    messages.success(request, f"“{found.name}” is removed.")
    return redirect("recovery:views", workspace=here.slug)


def _url(here: Workspace, view: SavedView) -> str:
    return f"{queue_url(here)}?{urlencode({'q': view.query})}"


def _show(request: Request, here: Workspace, form: dict[str, Any] | None = None) -> HttpResponse:
    found = saved.visible_to(here, request.user)[: saved.SHOWN_MAX]
    context = {
        "workspace": here,
        "queue_url": queue_url(here),
        "views": [_row(here, one, request.user) for one in found],
        "form": form or {},
        "may_share": may(request.user, "recover", here),
        "action": reverse("recovery:view_new", args=[here.slug]),
    }
    wrong = bool(form and form.get("error"))
    return page(request, "recovery/views.html", context, status=422 if wrong else 200)


def _row(here: Workspace, view: SavedView, person: User) -> dict[str, Any]:
    removable = saved.may_remove(view, person)
    return {
        "name": view.name,
        "query": view.query,
        "url": reverse("recovery:view", args=[here.slug, view.slug]),
        "owner": "you" if view.owner_id == person.pk else str(view.owner),
        "shared": view.shared,
        "remove_url": reverse("recovery:view_remove", args=[here.slug, view.slug])
        if removable
        else "",
    }
