"""The recovery queue: searchable, boring, useful."""

import contextlib
import re
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_GET, require_POST

from recovery import search
from recovery.cases.rows import OutOfDate
from recovery.casework import cases
from recovery.models import Case
from recovery.search import jumping, saved
from recovery.views import nothing
from recovery.views.here import list_of, queue_url
from recovery.views.lines import line
from recovery.views.rows import COLUMNS, peek, row
from workspaces import clock, look, news
from workspaces.access import may
from workspaces.models import User, Workspace
from workspaces.moves import CannotMove
from workspaces.pages import Request, is_number, page, workspace_or_404, workspace_to

VIEWS = (
    ("All open", ""),
    ("Needs me", "is:mine"),
    ("Unclaimed", "is:unclaimed"),
    ("Unknown outcome", "is:unknown"),
    ("Irreversible", "is:irreversible"),
    ("Past due", "is:overdue"),
)
SAVED_SHOWN_MAX = 6
VIEW_COUNT_MAX = 1_000
CLAIMS_MAX = 200
NEWS_MAX = 1_000
# A pasted id, as no word of a search is: long, with a digit, and no key of the language.
ID = re.compile(r"(?=\S*\d)[^\s:*\"()]{8,}")


@login_required
@require_GET
def queue(request: Request, workspace: str) -> HttpResponse:
    """A page of cases; every filter is in the address, and nothing changes by looking."""
    here = workspace_or_404(request, workspace)
    said = request.GET
    q, everything = said.get("q", "").strip(), "all" in said
    if ID.fullmatch(q) and len(found_there := jumping.places(here, q)) == 1:
        return redirect(found_there[0].url)
    context = _frame(request, here, q)
    order = said.get("sort", search.DEFAULT_ORDER)
    try:
        found = search.find(
            here,
            q,
            by=request.user,
            order=order,
            after=said.get("after", ""),
            everything=everything,
            columns=COLUMNS,
        )
        number = str(search.count(here, q, by=request.user, everything=everything, found=found))
    except (search.QueryError, search.BadPlace) as wrong:
        told = nothing.mistake(q, wrong)
        context |= {"query_error": told, "cases": [], "count": "0"}
        context["empty"] = nothing.unread(here, told)
        return page(request, "recovery/queue.html", context, part="rows", status=422)
    kept = list_of(request)
    recovers = context["may"]["recover"]
    rows = [row(case, request.user, kept, recovers=recovers) for case in found.cases]
    beside = peek(request, here, rows)
    for one in rows:
        one["line"] = line(one, picks=recovers)
    context |= {
        "cases": rows,
        "count": number,
        "sorts": _sorts(q, found.order),
        "pager": _pager(said, found, len(rows), number),
        "empty": None if rows else nothing.empty(here, q),
        "peek": beside,
    }
    return page(request, "recovery/queue.html", context)


def _frame(request: Request, here: Workspace, q: str) -> dict[str, Any]:
    root, recovers = queue_url(here), may(request.user, "recover", here)
    return {
        "workspace": here,
        "q": q,
        "views": _views(here, q, request.user),
        "views_url": f"/w/{here.slug}/views/",
        "fresh_url": f"{root}fresh/?{urlencode({'q': q})}",
        "since": clock.now().isoformat(),
        "may": {"recover": recovers},
        "claim_url": f"{root}claim/" if recovers else "",
        "suggest_url": f"{root}suggest/",
        "save_view_url": f"/w/{here.slug}/views/new/?{urlencode({'q': q})}",
        **(_bulk(here, q) if recovers else {}),
    }


def _views(here: Workspace, q: str, person: User) -> list[dict[str, Any]]:
    views = [*VIEWS, *_saved(here, person)]
    queries = [query for _, query in views]
    numbers = search.counts(here, queries, by=person, limit=VIEW_COUNT_MAX + 1)
    return [
        {
            "name": name,
            "count": "?" if number is None else look.count(number, VIEW_COUNT_MAX),
            "url": f"?{urlencode({'q': query})}" if query else queue_url(here),
            "current": query == q,
        }
        for (name, query), number in zip(views, numbers, strict=True)
    ]


def _saved(here: Workspace, person: User) -> list[tuple[str, str]]:
    """The person's own views first: there is room for few, the rest is one click further."""
    views = saved.visible_to(here, person)[: saved.SHOWN_MAX]
    found = views.values_list("name", "query", "owner_id")
    mine_first = sorted(found, key=lambda view: view[2] != person.pk)[:SAVED_SHOWN_MAX]
    return [(name, query) for name, query, _ in mine_first]


def _bulk(here: Workspace, q: str) -> dict[str, str]:
    """Where the chosen cases go, and all that match: to a dry run."""
    url = f"/w/{here.slug}/bulk/new/"
    return {"bulk_url": url, "bulk_all_url": f"{url}?{urlencode({'q': q or 'is:open'})}"}


def _sorts(q: str, order: str) -> dict[str, dict[str, str]]:
    def sort(name: str) -> dict[str, str]:
        url = "?" + urlencode({"q": q, "sort": name})
        return {"url": url, "direction": "descending" if name == order else ""}

    return {"risk": sort("risk"), "since": sort("newest")}


def _pager(said: Any, found: search.Found, shown: int, number: str) -> dict[str, Any]:
    kept = {name: said[name] for name in ("q", "sort", "all") if name in said}
    older = "?" + urlencode(kept | {"after": found.after}) if found.after else ""
    return {
        "label": f"{shown} of {number}",
        "previous": "?" + urlencode(kept) if said.get("after") else "",
        "next": older,
        "note": "Searched the last 90 days;" if found.is_cut else "",
        "all_url": "?" + urlencode(kept | {"all": "1"}) if found.is_cut else "",
    }


@login_required
@require_GET
def suggest(request: Request, workspace: str) -> HttpResponse:
    """What could stand where the cursor is, while somebody types."""
    here = workspace_or_404(request, workspace)
    said = request.GET
    cursor = int(said["cursor"]) if is_number(said.get("cursor", "")) else None
    found = search.suggest(here, said.get("q", "")[: search.QUERY_CHARACTERS_MAX], cursor)
    return page(request, "recovery/suggestions.html", {"suggestions": found})


@login_required
@require_GET
def fresh(request: Request, workspace: str) -> HttpResponse:
    """How many cases of this list are new since it was drawn, and which have left it since it was
    last told.
    """
    here = workspace_or_404(request, workspace)
    since = news.moment(request.GET.get("since", ""))
    if since is None:
        return JsonResponse({"new": 0, "since": clock.now().isoformat()})
    last = news.moment(request.GET.get("heard", "")) or since
    gone, heard = news.left(Case.objects.filter(workspace=here), "closed_at", last)
    told = {"new": 0, "heard": heard, "gone": gone}
    with contextlib.suppress(search.QueryError):
        query = search.parse(request.GET.get("q", ""))
        arrived = search.matching(here, query, by=request.user).filter(opened_at__gt=since)
        told["new"] = arrived.order_by()[:NEWS_MAX].count()
    return JsonResponse(told)


@login_required
@require_POST
def claim(request: Request, workspace: str) -> HttpResponse:
    """Claim the chosen cases; what somebody else holds stays theirs, and the page says so."""
    here = workspace_to("recover", request, workspace)
    chosen = [int(pk) for pk in request.POST.getlist("case")[:CLAIMS_MAX] if is_number(pk)]
    kept = 0
    for case in Case.objects.filter(workspace=here, pk__in=chosen):
        try:
            cases.claim(case, by=request.user, seen=case.revision)
        except (CannotMove, OutOfDate) as refusal:
            messages.warning(request, f"{case.run}: {refusal}")
        else:
            kept += 1
    if kept:
        messages.success(request, f"Claimed {kept}.")
    q = request.POST.get("q", "")
    return redirect(queue_url(here) + (f"?{urlencode({'q': q})}" if q else ""))
