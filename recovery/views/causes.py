"""Causes: like failures together, and one act on all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.db.models import Exists, F, OuterRef, QuerySet
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET

from ledger import disclosure
from recovery import search
from recovery.casework.bulk_verbs import USUAL, VERBS
from recovery.models import Case, CaseState, Cause
from recovery.triage.causes import raw, title
from recovery.views.queue_rows import COLUMNS, row
from recovery.views.request_context import queue_url
from workspaces import exporting, formatting, replica
from workspaces.access import may
from workspaces.models import Workspace
from workspaces.pages import (
    COUNT_MAX,
    Request,
    chips,
    named,
    page,
    page_by_moment,
    workspace_or_404,
)

NEW_HOURS = 24
"""So long a cause counts as new, and cases are compared with as many hours before."""

GROWING_CASES_MIN = 3
"""Fewer in a day are no trend: one after none would be twice as many as before."""

LOOKED_AT_MAX = 200
"""Of the causes seen last, to find those that grow."""

VIEWS = {"": "All", "new": "New", "regressed": "Regressed", "growing": "Growing"}


@dataclass(frozen=True, slots=True)
class Trend:
    """How a cause goes on: its open cases, and those of the last day and of the day before."""

    open: int
    lately: int
    before: int
    is_new: bool
    is_back: bool

    @property
    def is_growing(self) -> bool:
        return self.lately >= GROWING_CASES_MIN and self.lately > self.before

    @property
    def words(self) -> str:
        """The one word that a line shows; what is new cannot be back, nor grow."""
        if self.is_new:
            return "new"
        if self.is_back:
            return "regressed"
        return "growing" if self.is_growing else ""


def listed(workspace: Workspace, view: str = "") -> QuerySet[Cause]:
    """Causes of the workspace, the one seen last first."""
    day = timezone.now() - timedelta(hours=NEW_HOURS)
    found = Cause.objects.filter(workspace=workspace, case_count__gt=0)
    if view == "new":
        found = found.filter(first_seen_at__gt=day)
    elif view == "regressed":
        open_cases = Case.objects.filter(cause=OuterRef("pk")).exclude(state=CaseState.CLOSED)
        found = found.filter(Exists(open_cases), last_seen_at__gt=F("last_closed_at"))
    elif view == "growing":
        found = found.filter(last_seen_at__gt=day, first_seen_at__lte=day)
        lately = trends(list(found.order_by("-last_seen_at", "-id")[:LOOKED_AT_MAX]))
        growing = [pk for pk, how in lately.items() if how.is_growing]
        found = Cause.objects.filter(pk__in=growing)
    return found.order_by("-last_seen_at", "-id")


# Each count stops where the page stops counting; all causes of a page in one statement.
COUNTED = f"""
SELECT cause.id,
    (SELECT count(*) FROM (SELECT FROM recovery_case
        WHERE cause_id = cause.id AND state <> '{CaseState.CLOSED}' LIMIT %(most)s) one),
    (SELECT count(*) FROM (SELECT FROM recovery_case
        WHERE cause_id = cause.id AND opened_at > %(day)s LIMIT %(most)s) one),
    (SELECT count(*) FROM (SELECT FROM recovery_case
        WHERE cause_id = cause.id AND opened_at > %(two_days)s AND opened_at <= %(day)s
        LIMIT %(most)s) one)
FROM unnest(%(causes)s::bigint[]) AS cause (id)"""  # noqa: S608 - our own words


def trends(causes: Sequence[Cause]) -> dict[int, Trend]:
    """How each goes on, by its id."""
    now = timezone.now()
    day, two_days = (now - timedelta(hours=NEW_HOURS * days) for days in (1, 2))
    given: dict[str, Any] = {"causes": [one.pk for one in causes], "most": COUNT_MAX + 1}
    with replica.connection().cursor() as cursor:
        cursor.execute(COUNTED, given | {"day": day, "two_days": two_days})
        counted = {pk: counts for pk, *counts in cursor.fetchall()}
    return {
        one.pk: Trend(
            open=counted[one.pk][0],
            lately=counted[one.pk][1],
            before=counted[one.pk][2],
            is_new=one.first_seen_at > day,
            is_back=counted[one.pk][0] > 0
            and one.last_closed_at is not None
            and one.last_seen_at > one.last_closed_at,
        )
        for one in causes
    }


def trend(cause: Cause) -> Trend:
    return trends([cause])[cause.pk]


EMPTY = {
    "": "When runs go wrong, those that went wrong alike are one cause here.",
    "new": "No failure of the last day is of a kind that was never seen before.",
    "regressed": "Nothing that was closed has come back.",
    "growing": "No cause has more cases than the day before.",
}
CASES_SHOWN = 25


@login_required
@require_GET
@replica.reads
def cause_list(request: Request, workspace: str) -> HttpResponseBase:
    here = workspace_or_404(request, workspace)
    view = request.GET.get("view", "")
    view = view if view in VIEWS else ""
    if exporting.is_asked(request):
        return _export(request, here, listed(here, view))
    shown, pager = page_by_moment(request, listed(here, view), "last_seen_at")
    how = trends(shown)
    context = {
        "workspace": here,
        "views": chips(request, "view", VIEWS.items(), view),
        "rows": [_row(here, one, how[one.pk]) for one in shown],
        "pager": pager,
        "empty": {"icon": "cause", "title": "No causes here", "text": EMPTY[view]},
    }
    return page(request, "recovery/causes.html", context)


def _export(request: Request, here: Workspace, found: QuerySet[Cause]) -> HttpResponseBase:
    columns = ("fingerprint", "title", "tool", "trend", "open", "last_24_hours", "24_hours_before",
               "ever", "first_seen_at", "last_seen_at")  # fmt: skip

    def read(keys: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        causes = exporting.in_order(found, keys)
        how = trends(causes)
        for one in causes:
            now = how[one.pk]
            yield (one.fingerprint, title(one), one.tool, now.words, now.open, now.lately,
                   now.before, one.case_count, one.first_seen_at, one.last_seen_at)  # fmt: skip

    clean = disclosure.cleaner(request.user, here)
    export = exporting.Export("causes", columns, exporting.keys(found), read, clean)
    return exporting.answer(request, export)


@login_required
@require_GET
def cause(request: Request, workspace: str, fingerprint: str) -> HttpResponse:
    """One cause: what its cases have in common, those that are open, and what to do with all."""
    here = workspace_or_404(request, workspace)
    found = get_object_or_404(Cause, workspace=here, fingerprint=fingerprint)
    q = f"cause:{found.fingerprint}"
    listed = search.find(
        here,
        q,  # what is not closed, however old: to `is:open` old cases would be cut off
        by=request.user,
        order="newest",
        limit=CASES_SHOWN,
        columns=COLUMNS,
    )
    kept = urlencode({"q": q, "sort": "newest"})
    sensitive = disclosure.sees(request.user, here)
    context = {
        "workspace": here,
        "causes_url": reverse("recovery:causes", args=[here.slug]),
        "cause": _row(here, found, trend(found)),
        "facts": _facts(found),
        "cases": [row(case, request.user, kept, sensitive=sensitive) for case in listed.cases],
        "more_url": f"{queue_url(here)}?{kept}" if listed.after else "",
        "closed_url": f"{queue_url(here)}?{urlencode({'q': f'{q} is:closed'})}",
        "acts": _acts(here, q) if listed.cases and may(request.user, "recover", here) else [],
    }
    return page(request, "recovery/cause.html", context)


def _row(here: Workspace, one: Cause, how: Trend) -> dict[str, Any]:
    return {
        "fingerprint": one.fingerprint,
        "url": reverse("recovery:cause", args=[here.slug, one.fingerprint]),
        "title": title(one),
        "kind": raw(one),
        "tool": one.tool,
        "trend": how.words,
        "open": formatting.count(how.open, COUNT_MAX),
        "lately": formatting.count(how.lately, COUNT_MAX),
        "before": formatting.count(how.before, COUNT_MAX),
        "all": formatting.count(one.case_count),
        "last": formatting.moment(one.last_seen_at),
    }


def _facts(one: Cause) -> list[dict[str, Any]]:
    closed = formatting.ago(one.last_closed_at) if one.last_closed_at else "never"
    return named(
        {
            "Tool": one.tool,
            "Kind of error": one.error_type.replace("_", " "),
            "First seen": formatting.ago(one.first_seen_at),
            "Last seen": formatting.ago(one.last_seen_at),
            "Last closed": closed,
            "Fingerprint": formatting.digest(one.fingerprint),
        }
    )


def _acts(here: Workspace, q: str) -> list[dict[str, Any]]:
    """What can be done with every open case of it: each begins with a dry run."""
    url = reverse("recovery:bulk_new", args=[here.slug])
    return [
        {
            "label": f"{verb.label} all…",
            "key": verb.key,
            "main": act == USUAL,
            "url": f"{url}?{urlencode({'act': act, 'q': q})}",
        }
        for act, verb in VERBS.items()
        if verb.on_causes
    ]
