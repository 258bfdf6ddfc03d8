"""What could not be undone: the list, and the page of one on which it is marked as done."""

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods

from recovery.cases.lifecycle import InvalidInput
from recovery.casework import residues
from recovery.models import Residue
from recovery.views.request_context import case_url
from workspaces import formatting
from workspaces.access import require
from workspaces.moves import CannotMove
from workspaces.pages import Request, page, workspace_or_404

VIEWS = (("open", "Open"), ("mine", "Mine"), ("overdue", "Past due"), ("done", "Done"))
COUNT_MAX = 1_000


@login_required
@require_GET
def residue_list(request: Request, workspace: str) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    view = request.GET.get("view", "open")
    view = view if view in dict(VIEWS) else "open"
    found = residues.of(here)
    state = "done" if view == "done" else "open"
    rows, more = residues.page_after(
        _narrowed(found, view, request), state, request.GET.get("after", "")
    )
    url = reverse("recovery:residues", args=[here.slug])
    context = {
        "workspace": here,
        "views": [
            {
                "name": label,
                "url": f"{url}?view={name}",
                "current": name == view,
                "count": _count(_narrowed(found, name, request), name),
            }
            for name, label in VIEWS
        ],
        "rows": [row(one) for one in rows],
        "pager": {
            "label": f"{formatting.count(len(rows))} shown",
            "previous": f"{url}?view={view}" if request.GET.get("after") else "",
            "next": f"{url}?{urlencode({'view': view, 'after': more})}" if more else "",
        },
        "empty": {
            "icon": "clear",
            "title": "Nothing is left over here",
            "text": "When a case is closed and something of it could not be undone, it gets an"
            " owner and a date, and stands here until somebody says what was done about it.",
        },
    }
    return page(request, "recovery/residues.html", context)


def _narrowed(found: Any, view: str, request: Request) -> Any:
    if view == "mine":
        return found.filter(owner=request.user)
    return found.filter(due_at__lt=timezone.now()) if view == "overdue" else found


def _count(found: Any, view: str) -> str:
    state = "done" if view == "done" else "open"
    number = found.filter(**residues.STATES[state]).order_by().values("pk")[: COUNT_MAX + 1].count()
    return formatting.count(number, COUNT_MAX)


@login_required
@require_http_methods(["GET", "POST"])
def residue(request: Request, workspace: str, pk: int) -> HttpResponse:
    """GET shows it; POST says that it is done, by name and with what was done."""
    here = workspace_or_404(request, workspace)
    found = get_object_or_404(residues.of(here), pk=pk)
    if request.method == "GET":
        return _show(request, found)
    if not residues.may_end(found, request.user):
        require(request.user, "recover", here)
    note = request.POST.get("note", "")
    try:
        residues.done(found, note=note, by=request.user)
    except (CannotMove, InvalidInput) as refusal:
        problem = {"tone": "bad", "title": "Nothing was written down.", "text": str(refusal)}
        status = 409 if isinstance(refusal, CannotMove) else 422
        return _show(request, found, problem=problem, note=note, status=status)
    messages.success(request, "Done, in your name.")
    return redirect("recovery:residue", workspace=here.slug, pk=pk)


def _show(
    request: Request,
    found: Residue,
    *,
    problem: dict[str, str] | None = None,
    note: str = "",
    status: int = 200,
) -> HttpResponse:
    here = found.case.workspace
    may_end = residues.may_end(found, request.user)
    context = {
        "workspace": here,
        "list_url": reverse("recovery:residues", args=[here.slug]),
        "residue": row(found) | {"due_at": formatting.moment(found.due_at, "full")},
        "problem": problem,
        "note": note,
        "may_end": may_end and found.done_at is None,
        "why_not": "" if may_end else f"Whoever recovers, or {found.owner}, can say so.",
    }
    return page(request, "recovery/residue.html", context, status=status)


def row(one: Residue) -> dict[str, Any]:
    """One line, wherever what is left is listed."""
    is_done = one.done_at is not None
    here = one.case.workspace.slug
    return {
        "text": one.text,
        "url": reverse("recovery:residue", args=[here, one.pk]),
        "case_url": case_url(one.case),
        "run": one.case.run.run,
        "customer": one.case.customer_name or one.case.customer,
        "owner": str(one.owner),
        "due": "done" if is_done else f"due {formatting.ago(one.due_at)}",
        "overdue": not is_done and one.due_at < timezone.now(),
        "is_done": is_done,
        "done": f"{one.done_by or 'Somebody'}, {formatting.ago(one.done_at)}"
        if one.done_at
        else "",
        "done_at": formatting.moment(one.done_at) if one.done_at else "",
        "done_by": str(one.done_by or "Somebody") if is_done else "",
        "note": one.done_note,
    }
