"""Saved views: a query with a name, kept on the server, for its owner or for everybody."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.text import slugify
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from ledger import disclosure
from recovery import search
from recovery.models import SavedView
from recovery.search.keys import parse
from recovery.search.lists import matching
from recovery.views.request_context import queue_url
from workspaces import exporting, locks, replica
from workspaces.access import NotAllowed, may, require
from workspaces.free_text import InvalidInput, kept_text
from workspaces.models import User, Workspace
from workspaces.pages import Request, page, workspace_or_404

VIEWS_MAX = 50
"""Of one person in one workspace; whoever needs more has a query language."""

NAME_CHARACTERS_MAX = 80
SLUG_CHARACTERS_MAX = 50
SHOWN_MAX = 200
BESIDE_MAX = 6
"""Beside the queue: there is room for few, the rest is one click further."""

# The person's own first. Written out: it stands beside every queue, and the ORM takes a millisecond
# to build it anew.
BESIDE = """
SELECT name, query FROM recovery_savedview
WHERE workspace_id = %(here)s AND (shared OR owner_id = %(person)s)
ORDER BY owner_id <> %(person)s, name, id LIMIT %(most)s"""


class CannotSave(ValueError):
    """We stopped because its owner has too many views; the message says it."""


def visible_to(workspace: Workspace, person: User) -> QuerySet[SavedView]:
    """The person's own views and those that others share, by name."""
    views = SavedView.objects.filter(Q(shared=True) | Q(owner=person), workspace=workspace)
    return views.select_related("owner").order_by("name", "pk")


def beside(workspace: Workspace, person: User) -> list[tuple[str, str]]:
    """Name and query of the views that are offered beside the queue."""
    with replica.connection().cursor() as cursor:
        given = {"here": workspace.pk, "person": person.pk, "most": BESIDE_MAX}
        cursor.execute(BESIDE, given)
        return list(cursor.fetchall())


@transaction.atomic
def save_view(workspace: Workspace, *, by: User, name: str, query: str, shared: bool) -> SavedView:
    """Keep a query under a name; raises CannotSave, InvalidInput, QueryError, or NotAllowed.

    A name that its owner has already is the same view with another query.
    """
    name = kept_text(" ".join(name.split()), NAME_CHARACTERS_MAX, asking="A view needs a name.")
    matching(workspace, parse(query), by=by)
    if shared:
        require(by, "recover", workspace)
    locks.locked(Workspace.objects.all()).get(pk=workspace.pk)  # one slug at a time
    own = SavedView.objects.filter(workspace=workspace, owner=by)
    view = own.filter(name=name).first()
    if view is None:
        if own.count() >= VIEWS_MAX:
            raise CannotSave(f"You have {VIEWS_MAX} views already. Remove one first.")
        view = SavedView(workspace=workspace, owner=by, name=name, slug=_slug(workspace, name))
    view.query, view.shared = query.strip(), shared
    view.save()
    return view


def may_remove(view: SavedView, person: User) -> bool:
    """Its owner, and of a shared one whoever administers the workspace."""
    return view.owner_id == person.pk or (view.shared and may(person, "administer", view.workspace))


def _slug(workspace: Workspace, name: str) -> str:
    """The name for an address, with a number where another view has it."""
    base = slugify(name)[:SLUG_CHARACTERS_MAX] or "view"
    taken = set(
        SavedView.objects.filter(workspace=workspace, slug__startswith=base).values_list(
            "slug", flat=True
        )
    )
    numbered = (f"{base}-{number}" for number in range(2, len(taken) + 3))
    return next(one for one in (base, *numbered) if one not in taken)


# Saved views: keeping the query that is shown, and the list of what was kept.


@login_required
@require_GET
def views(request: Request, workspace: str) -> HttpResponseBase:
    here = workspace_or_404(request, workspace)
    if exporting.is_asked(request):
        tables: dict[str, exporting.Table] = {
            "saved-views": (visible_to(here, request.user), EXPORTED)
        }
        return exporting.table(request, tables, disclosure.cleaner(request.user, here))
    return _show(request, here)


EXPORTED: exporting.Columns = {
    "name": "name",
    "query": "query",
    "owner": lambda one: str(one.owner),
    "shared": "shared",
}


@login_required
@require_http_methods(["GET", "POST"])
def save(request: Request, workspace: str) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    posted = request.POST
    if request.method == "GET" and exporting.is_asked(request):  # the list beside the form
        file = {name: request.GET.get(name, "") for name in ("table", "format")}
        return redirect(f"{reverse('recovery:views', args=[here.slug])}?{urlencode(file)}")
    if request.method == "GET":
        return _show(request, here, form={"query": request.GET.get("q", ""), "open": True})
    try:
        view = save_view(
            here,
            by=request.user,
            name=posted.get("name", ""),
            query=posted.get("q", ""),
            shared="shared" in posted,
        )
    except (CannotSave, InvalidInput, search.QueryError, NotAllowed) as refusal:
        form = {
            "query": posted.get("q", ""),
            "name": posted.get("name", ""),
            "shared": "shared" in posted,
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
    found = get_object_or_404(visible_to(here, request.user), slug=slug)
    return redirect(_url(here, found))


@login_required
@require_POST
def remove(request: Request, workspace: str, slug: str) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    found = get_object_or_404(visible_to(here, request.user), slug=slug)
    if not may_remove(found, request.user):
        raise NotAllowed("administer", here)
    found.delete()
    messages.success(request, f"“{found.name}” is removed.")
    return redirect("recovery:views", workspace=here.slug)


def _url(here: Workspace, view: SavedView) -> str:
    return f"{queue_url(here)}?{urlencode({'q': view.query})}"


def _show(request: Request, here: Workspace, form: dict[str, Any] | None = None) -> HttpResponse:
    found = visible_to(here, request.user)[:SHOWN_MAX]
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
    removable = may_remove(view, person)
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
