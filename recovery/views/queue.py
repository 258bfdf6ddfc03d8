"""The recovery queue: searchable, boring, useful."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.http import HttpResponse, HttpResponseBase, JsonResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from approvals.models import Approval
from ledger import disclosure, proofs
from ledger.models import Effect, Run
from recovery import search
from recovery.cases.lifecycle import REFUSALS, holder_of
from recovery.casework import cases
from recovery.casework.bulk_verbs import USUAL, VERBS
from recovery.models import Case, CaseOutcome, Cause, Correction
from recovery.run_facts.runs import facts_of
from recovery.search.keys import WITHOUT_EFFECTS
from recovery.views import acts, saved_views, story
from recovery.views.queue_rows import COLUMNS, line, row
from recovery.views.request_context import list_of, queue_url
from workspaces import clock, exporting, formatting, news, replica
from workspaces.access import may
from workspaces.models import User, Workspace
from workspaces.pages import Request, is_number, named, page, workspace_or_404, workspace_to

# Jumping: any id of a workspace, pasted anywhere, leads to its page.

ID_CHARACTERS_MAX = 400
# A cause is named by the beginning of its fingerprint; fewer characters would fit many.
FINGERPRINT_CHARACTERS_MIN = 8


@dataclass(frozen=True, slots=True)
class JumpTarget:
    """Where an id leads, and what it is there."""

    kind: str
    name: str
    url: str


def places_named(workspace: Workspace, query: str) -> list[JumpTarget]:
    """Every page that `said` is the id of: none, one, or of a bare number several."""
    query = query.strip().strip("#")[:ID_CHARACTERS_MAX]
    if not query or "\0" in query:
        return []
    if is_number(query):
        return _numbered(workspace, int(query)) + _named(workspace, query)
    return _named(workspace, query)


def _numbered(workspace: Workspace, number: int) -> list[JumpTarget]:
    found = []
    case = Case.objects.filter(workspace=workspace, pk=number).first()
    if case is not None:
        url = reverse("recovery:case", args=[workspace.slug, number])
        found.append(JumpTarget("Case", case.headline, url))
    approval = Approval.objects.filter(workspace=workspace, pk=number).first()
    if approval is not None:
        url = reverse("approvals:card", args=[workspace.slug, number])
        found.append(JumpTarget("Approval", approval.headline, url))
    return found


def _named(workspace: Workspace, query: str) -> list[JumpTarget]:
    """A run's case before the run itself: whoever pastes a run's id has trouble with it."""
    slug = workspace.slug
    case = Case.objects.filter(workspace=workspace, run__run=query).first()
    if case is not None:
        return [JumpTarget("Case", case.headline, reverse("recovery:case", args=[slug, case.pk]))]
    if Run.objects.filter(workspace=workspace, run=query).exists():
        return [JumpTarget("Run", query, reverse("ledger:run", args=[slug, query]))]
    correction = Correction.objects.filter(workspace=workspace, reference=query.upper()).first()
    if correction is not None:
        url = reverse("recovery:correction", args=[slug, correction.pk])
        return [JumpTarget("Correction", correction.title, url)]
    if proofs.event_of(workspace, query) is not None:
        return [JumpTarget("Event", query, reverse("ledger:event", args=[slug, query]))]
    if len(query) < FINGERPRINT_CHARACTERS_MIN:
        return []
    alike = Cause.objects.filter(workspace=workspace, fingerprint__startswith=query.lower())
    return [
        JumpTarget(
            "Cause", str(one), reverse("recovery:cause", args=[workspace.slug, one.fingerprint])
        )
        for one in alike[:2]
    ]


@login_required
@require_GET
def jump(request: Request, workspace: str, query: str) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    found = places_named(here, query)
    if len(found) == 1:
        return redirect(found[0].url)
    context = {"workspace": here, "query": query, "places": found, "queue_url": queue_url(here)}
    return page(request, "recovery/jump.html", context, status=200 if found else 404)


VIEW_WITHOUT_EFFECTS = f"is:{WITHOUT_EFFECTS}"

# When the queue has nothing to show: no agent yet, nothing wrong, no match, or a mistake.


def mistake(q: str, wrong: ValueError) -> dict[str, Any]:
    if not isinstance(wrong, search.QueryError):
        return {"before": q, "at": "", "after": "", "message": str(wrong), "drops": []}
    place, end = wrong.position, wrong.position + wrong.length
    # Without all of the word that it is in: half of one would be the next mistake.
    start, stop = q.rfind(" ", 0, place) + 1, f"{q} ".find(" ", end)
    without = f"{q[:start]}{q[stop:].lstrip()}".strip()
    found = {f"Leave out {q[start:stop]}": without}
    if wrong.instead:
        found = {f"Read it as {wrong.instead}:": f"{q[:place]}{wrong.instead}{q[end:]}"} | found
    return {
        "before": q[:place],
        "at": q[place:end],
        "after": q[end:],
        "message": wrong.message,
        "drops": [
            {"label": label, "url": f"?{urlencode({'q': query})}"} for label, query in found.items()
        ],
    }


def empty(here: Workspace, q: str) -> dict[str, Any]:
    if q == VIEW_WITHOUT_EFFECTS:
        text = "No run has failed before it did anything, or each was resumed or closed."
        return {"icon": "clear", "title": "Nothing failed without effects", "text": text}
    if q:
        return no_match(here, q)
    if not Run.objects.filter(workspace=here).exists():
        keys = f"/w/{here.slug}/settings/keys/"
        return {
            "icon": "run",
            "title": "No agent is connected yet",
            "text": "Three steps, ten lines:",
            "steps": [
                "Name the agent and make a key for it.",
                "Put AMENDS_URL and AMENDS_KEY into its environment.",
                "Wrap its tool calls as docs/agents.md shows; its runs then appear here.",
            ],
            "links": [{"label": "Make a key", "url": keys, "main": True}],
        }
    closed = Case.objects.filter(workspace=here, closed_at__isnull=False, without_effects=False)
    last = closed.order_by("-closed_at").values_list("closed_at", flat=True).first()
    text = f"The last case was closed {formatting.ago(last)}." if last else "No run has gone wrong."
    return {"icon": "clear", "title": "Nothing to recover", "text": text}


def unread(here: Workspace, wrong: dict[str, Any]) -> dict[str, Any]:
    """A query that cannot be read has found nothing, and says nothing of the cases."""
    links = [*wrong["drops"], {"label": "All open", "url": queue_url(here), "main": True}]
    title, text = "This search cannot be read", "Nothing was looked for. The mistake is told above."
    return {"icon": "search", "title": title, "text": text, "links": links}


def no_match(here: Workspace, q: str) -> dict[str, Any]:
    """What was asked, and each part that could be dropped and leaves a query."""
    query = search.parse(q)
    drops = [
        {
            "label": f"Without {query.text[one.position : one.position + one.length]}",
            "url": f"?{urlencode({'q': query.without(one)})}",
        }
        for one in query.terms[:DROPS_MAX]
        if _is_query(query.without(one))
    ]
    links = [*drops, {"label": "All open", "url": queue_url(here), "main": True}]
    return {"icon": "search", "title": "No case fits", "text": f"Searched for: {q}", "links": links}


def _is_query(q: str) -> bool:
    with contextlib.suppress(search.QueryError):
        search.parse(q)
        return True
    return False


DROPS_MAX = 8
EFFECTS_SHOWN_MAX = 12


def peek(request: Request, here: Workspace, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The case beside the list, if the address names one."""
    wanted = request.GET.get("peek", "")
    kept = {k: v for k, v in request.GET.items() if k != "peek"}
    for one in rows:
        one["peek_url"] = "?" + urlencode(kept | {"peek": one["id"]})
        one["here"] = str(one["id"]) == wanted
    if not is_number(wanted):
        return None
    case = Case.objects.select_related("run", "agent", "workspace", "claimed_by").filter(
        pk=int(wanted), workspace=here
    )
    found = case.first()
    if found is None:
        return None
    done = (
        Effect.objects.select_related("action")
        .filter(action__run=found.run_id, withdrawn=False)
        .order_by("-action__n", "-action__first_place", "-position")
    )
    sensitive = disclosure.sees(request.user, here)
    shown = row(found, request.user, sensitive=sensitive)
    offered = acts.offered(found, request.user)
    known = facts_of(found.run)
    return shown | {
        "headline": disclosure.headline(
            found.headline, found.headline_in_full, sensitive=sensitive
        ),
        "close_url": "?" + urlencode(kept) if kept else queue_url(here),
        "facts": _row_facts(found, shown),
        "effects": story.lines(known, [(one.action, one) for one in done[:EFFECTS_SHOWN_MAX]]),
        "reason": found.suggestion_reason,
        "acts": offered,
        "acts_why": acts.why_not(offered),
    }


def _row_facts(case: Case, shown: dict[str, Any]) -> list[dict[str, Any]]:
    told = named(
        {
            "Run": case.run.run,
            "Agent": case.agent.name if case.agent else "the desk",
            "Customer": shown["customer"] and formatting.person(shown["customer"]),
            "Asked for": case.request and formatting.quoted(case.request),
            "Failed": f"{formatting.named(case.failed_tool)} {case.failed_target}".strip(),
            "Needs approval": shown["approval"],
            "Claimed by": shown["claimant"] or "nobody",
        }
    )
    due = [{"name": "Due", "time": shown["due"]}] if shown["due"] else []
    return [*told[:-1], *due, told[-1]]


VIEWS = (
    ("All open", ""),
    ("Needs me", "is:mine"),
    ("Unclaimed", "is:unclaimed"),
    ("Unknown outcome", "is:unknown"),
    ("Irreversible", "is:irreversible"),
    ("Past due", "is:overdue"),
    ("Failed without effects", VIEW_WITHOUT_EFFECTS),
)
VIEW_COUNT_MAX = 1_000
CLAIMS_MAX = 200
NEWS_MAX = 1_000
# A pasted id, as no word of a search is: long, with a digit, and no key of the language.
ID = re.compile(r"(?=\S*\d)[^\s:*\"()]{8,}")


@login_required
@require_GET
@replica.reads
def queue(request: Request, workspace: str) -> HttpResponseBase:
    """A page of cases; every filter is in the address, and nothing changes by looking."""
    here = workspace_or_404(request, workspace)
    params = request.GET
    q, everything = params.get("q", "").strip(), bool(params.get("all"))
    if ID.fullmatch(q) and len(found_there := places_named(here, q)) == 1:
        return redirect(found_there[0].url)
    if exporting.is_asked(request):
        return _export(request, here, q, everything=everything)
    context = _frame(request, here, q)
    order = params.get("sort", search.DEFAULT_ORDER)
    try:
        found = search.find(
            here,
            q,
            by=request.user,
            order=order,
            after=params.get("after", ""),
            everything=everything,
            columns=COLUMNS,
        )
        counted = None if everything else _counted(context["views"])
        number = str(
            search.count(
                here, q, by=request.user, everything=everything, found=found, counted=counted
            )
        )
    except (search.QueryError, search.BadPlace) as wrong:
        error = mistake(q, wrong)
        context |= {"query_error": error, "cases": [], "count": "0"}
        context["empty"] = unread(here, error)
        return page(request, "recovery/queue.html", context, part="rows", status=422)
    kept = list_of(request)
    recovers = context["may"]["recover"]
    sensitive = disclosure.sees(request.user, here)
    rows = [
        row(case, request.user, kept, sensitive=sensitive, recovers=recovers)
        for case in found.cases
    ]
    beside = peek(request, here, rows)
    for one in rows:
        one["line"] = line(one, picks=recovers)
    context |= {
        "cases": rows,
        "count": number,
        "sorts": _sorts(_kept(params, "q", "all"), found.order),
        "pager": _pager(params, found, len(rows), number) | {"files": exporting.links(request)},
        "empty": None if rows else empty(here, q),
        "peek": beside,
    }
    return page(request, "recovery/queue.html", context)


EXPORTED = (
    "case", "state", "risk", "headline", "request", "customer", "run", "agent", "failed_action",
    "failed_target", "suggestion", "needs_approval", "failed_at", "due_at", "undo_until",
    "claimed_by", "closed_at", "outcome", "amount_minor", "currency",
)  # fmt: skip


def _export(request: Request, here: Workspace, q: str, *, everything: bool) -> HttpResponseBase:
    sensitive = disclosure.sees(request.user, here)
    order = request.GET.get("sort", search.DEFAULT_ORDER)
    try:
        found = search.every(here, q, by=request.user, order=order, everything=everything)
        chosen = exporting.keys(found)
    except search.QueryError as wrong:
        return HttpResponse(f"{wrong.message}\n", status=422, content_type="text/plain")
    cases_here = Case.objects.filter(workspace=here).select_related("run", "agent", "claimed_by")

    def read(keys: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        for one in exporting.in_order(cases_here, keys):
            title = disclosure.headline(one.headline, one.headline_in_full, sensitive=sensitive)
            yield (
                one.pk, one.state, one.risk, title, one.request, one.customer_name or one.customer,
                one.run.run, one.agent.name if one.agent else "", one.failed_tool,
                one.failed_target, one.suggestion, one.needs_approval, one.failed_at, one.due_at,
                one.undo_until, str(holder_of(one) or ""), one.closed_at, one.outcome,
                one.amount_minor, one.currency,
            )  # fmt: skip

    return exporting.answer(
        request,
        exporting.Export("cases", EXPORTED, chosen, read, disclosure.cleaner(request.user, here)),
    )


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
        "query_keys": " ".join(search.KEYS),
        "save_view_url": f"/w/{here.slug}/views/new/?{urlencode({'q': q})}",
        **_bulk(here, _kept(request.GET, "q", "all"), request.user, recovers=recovers),
    }


def _views(here: Workspace, q: str, person: User) -> list[dict[str, Any]]:
    views = [*VIEWS, *saved_views.beside(here, person)]
    queries = [query for _, query in views]
    numbers = search.counts(here, queries, by=person, limit=VIEW_COUNT_MAX + 1, shown=q)
    return [
        {
            "name": name,
            "count": "?" if number is None else formatting.count(number, VIEW_COUNT_MAX),
            "number": number,
            "counts": "" if query else "queue",
            "url": f"?{urlencode({'q': query})}" if query else queue_url(here),
            "current": query == q,
        }
        for (name, query), number in zip(views, numbers, strict=True)
    ]


def _counted(views: list[dict[str, Any]]) -> int | None:
    """How many cases the list has, where a view beside it is the same."""
    return next((view["number"] for view in views if view["current"]), None)


def _bulk(here: Workspace, kept: dict[str, str], person: User, *, recovers: bool) -> dict[str, Any]:
    """Where the chosen cases go, and all that match: to a dry run of what the person may do."""
    url = f"/w/{here.slug}/bulk/new/"
    verbs = [
        {"name": name, "label": verb.label, "key": verb.key, "main": name == USUAL}
        for name, verb in VERBS.items()
        if (recovers if verb.permission == "recover" else may(person, verb.permission, here))
    ]
    every = f"{url}?{urlencode(kept)}"
    return {"bulk_url": url, "bulk_all_url": every, "bulk_verbs": verbs} if verbs else {}


def _kept(said: QueryDict, *names: str) -> dict[str, str]:
    return {name: str(said[name]) for name in names if said.get(name)}


def _sorts(kept: dict[str, str], order: str) -> dict[str, dict[str, str]]:
    def sort(name: str) -> dict[str, str]:
        url = "?" + urlencode(kept | {"sort": name})
        direction = "descending" if search.ORDERS[name].descending else "ascending"
        return {"url": url, "direction": direction if name == order else ""}

    orders = {"risk": "risk", "since": "newest", "due": "due", "window": "window"}
    return {name: sort(of_list) for name, of_list in orders.items()}


def _pager(params: Any, found: search.CasePage, shown: int, number: str) -> dict[str, Any]:
    kept = _kept(params, "q", "sort", "all")
    return {
        "label": f"{shown} of {number}",
        "previous": "?" + urlencode(kept) if params.get("after") else "",
        "next": "?" + urlencode(kept | {"after": found.after}) if found.after else "",
        "note": "Searched the last 90 days;" if found.is_cut else "",
        "all_url": "?" + urlencode(kept | {"all": "1"}) if found.is_cut else "",
    }


@login_required
@require_GET
def suggest(request: Request, workspace: str) -> HttpResponse:
    """What could stand where the cursor is, while somebody types."""
    here = workspace_or_404(request, workspace)
    params = request.GET
    cursor = int(params["cursor"]) if is_number(params.get("cursor", "")) else None
    q = params.get("q", "")[: search.QUERY_CHARACTERS_MAX]
    found = search.suggest(here, q, cursor, by=request.user)
    return page(request, "recovery/suggestions.html", {"suggestions": found})


@login_required
@require_GET
def fresh(request: Request, workspace: str) -> HttpResponse:
    """How many cases of this list are new since it was drawn, or open again, and which have left it
    or come back since it was last told.
    """
    here = workspace_or_404(request, workspace)
    since = news.moment(request.GET.get("since", ""))
    if since is None:
        return JsonResponse({"new": 0, "since": clock.now().isoformat()})
    last = news.moment(request.GET.get("heard", "")) or since
    mine = Case.objects.filter(workspace=here)
    ended, heard = news.left(mine, "closed_at", last, how="outcome")
    gone = {pk: f"Closed: {CaseOutcome(how).label.lower()}" for pk, how in ended.items()}
    back, too = news.left(mine.filter(closed_at=None), "reopened_at", last, how="state")
    news_found = {"new": 0, "heard": min(heard, too), "gone": gone, "back": list(back)}
    with contextlib.suppress(search.QueryError):
        query = search.parse(request.GET.get("q", ""))
        arrived = search.matching(here, query, by=request.user).filter(
            Q(opened_at__gt=since) | Q(reopened_at__gt=since)
        )
        news_found["new"] = arrived.order_by()[:NEWS_MAX].count()
    [number] = search.counts(here, [""], by=request.user, limit=VIEW_COUNT_MAX + 1)
    if number is not None:
        news_found["counts"] = {"queue": formatting.count(number, VIEW_COUNT_MAX)}
    return JsonResponse(news_found)


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
        except REFUSALS as refusal:
            messages.warning(request, f"{case.run}: {refusal}")
        else:
            kept += 1
    if kept:
        messages.success(request, f"Claimed {kept}.")
    asked = _kept(request.POST, "q", "sort", "all")
    return redirect(queue_url(here) + (f"?{urlencode(asked)}" if asked else ""))
