"""Causes: like failures together, and one act on all of them."""

from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.db.models import Q, QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_GET

from recovery import search
from recovery.casework.bulk_verbs import USUAL, VERBS
from recovery.models import Cause
from recovery.search import causes
from recovery.triage.causes import title
from recovery.views.queue_rows import COLUMNS, row
from recovery.views.request_context import queue_url
from workspaces import formatting
from workspaces.access import may
from workspaces.models import Workspace
from workspaces.pages import ROWS_A_PAGE, Request, is_number, page, page_of, workspace_or_404

NAMES = {"": "All", "new": "New", "regressed": "Regressed", "growing": "Growing"}
EMPTY = {
    "": "When runs go wrong, those that went wrong alike are one cause here.",
    "new": "No failure of the last day is of a kind that was never seen before.",
    "regressed": "Nothing that was closed has come back.",
    "growing": "No cause has more cases than the day before.",
}
CASES_SHOWN = 25


@login_required
@require_GET
def cause_list(request: Request, workspace: str) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    view = request.GET.get("view", "")
    view = view if view in causes.VIEWS else ""
    found = _after(causes.listed(here, view), request.GET.get("after", ""))
    shown, pager = page_of(request, list(found[: ROWS_A_PAGE + 1]), _key)
    context = {
        "workspace": here,
        "views": [
            {
                "name": NAMES[name],
                "url": f"{request.path}?view={name}" if name else request.path,
                "current": name == view,
            }
            for name in causes.VIEWS
        ],
        "rows": [_row(here, one) for one in shown],
        "pager": pager,
        "empty": {"icon": "cause", "title": "No causes here", "text": EMPTY[view]},
    }
    return page(request, "recovery/causes.html", context)


@login_required
@require_GET
def cause(request: Request, workspace: str, fingerprint: str) -> HttpResponse:
    """One cause: what its cases have in common, those that are open, and what to do with all."""
    here = workspace_or_404(request, workspace)
    found = get_object_or_404(Cause, workspace=here, fingerprint=fingerprint)
    q = f"cause:{found.fingerprint}"
    listed = search.find(
        here,
        f"{q} is:open",
        by=request.user,
        order="newest",
        limit=CASES_SHOWN,
        columns=COLUMNS,
    )
    kept = urlencode({"q": q, "sort": "newest"})
    context = {
        "workspace": here,
        "causes_url": reverse("recovery:causes", args=[here.slug]),
        "cause": _row(here, found),
        "facts": _facts(found),
        "cases": [row(case, request.user, kept) for case in listed.cases],
        "more_url": f"{queue_url(here)}?{kept}" if listed.after else "",
        "closed_url": f"{queue_url(here)}?{urlencode({'q': f'{q} is:closed'})}",
        "acts": _acts(here, q) if listed.cases and may(request.user, "recover", here) else [],
    }
    return page(request, "recovery/cause.html", context)


def _key(one: Cause) -> str:
    return f"{one.last_seen_at.isoformat()}_{one.pk}"


def _after(found: QuerySet[Cause], after: str) -> QuerySet[Cause]:
    moment, _, number = after.rpartition("_")
    try:
        since = datetime.fromisoformat(moment)
    except ValueError:
        return found
    if since.tzinfo is None or not is_number(number):
        return found
    return found.filter(Q(last_seen_at__lt=since) | Q(last_seen_at=since, id__lt=int(number)))


def _row(here: Workspace, one: Cause) -> dict[str, Any]:
    trend = causes.trend(one)
    return {
        "fingerprint": one.fingerprint,
        "url": reverse("recovery:cause", args=[here.slug, one.fingerprint]),
        "title": title(one),
        "kind": one.error_type.replace("_", " "),
        "tool": one.tool,
        "trend": trend.words,
        "open": formatting.count(trend.open, causes.COUNT_MAX),
        "lately": formatting.count(trend.lately, causes.COUNT_MAX),
        "before": formatting.count(trend.before, causes.COUNT_MAX),
        "all": formatting.count(one.case_count),
        "last": formatting.moment(one.last_seen_at),
    }


def _facts(one: Cause) -> list[dict[str, Any]]:
    told = [
        ("Tool", one.tool),
        ("Kind of error", one.error_type.replace("_", " ")),
        ("First seen", formatting.ago(one.first_seen_at)),
        ("Last seen", formatting.ago(one.last_seen_at)),
        ("Last closed", formatting.ago(one.last_closed_at) if one.last_closed_at else "never"),
        ("Fingerprint", one.fingerprint[:12]),
    ]
    return [{"name": name, "value": value} for name, value in told if value]


def _acts(here: Workspace, q: str) -> list[dict[str, Any]]:
    """What can be done with every open case of it: each begins with a dry run."""
    url = reverse("recovery:bulk_new", args=[here.slug])
    return [
        {
            "label": f"{verb.label} all…",
            "key": verb.key,
            "main": act == USUAL,
            "url": f"{url}?{urlencode({'act': act, 'q': f'{q} is:open'})}",
        }
        for act, verb in VERBS.items()
        if verb.on_causes
    ]
