"""The recovery queue: searchable, boring, useful."""

from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse, JsonResponse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_GET, require_POST

from ledger.models import Effect, Run
from recovery import search
from recovery.casework import cases, casework
from recovery.casework.outdated import OutOfDate
from recovery.models import Case, CaseState
from recovery.views import acts
from recovery.views.here import case_url, due_words, queue_url, trace_url
from workspaces import look
from workspaces.access import may, require
from workspaces.models import User, Workspace
from workspaces.moves import CannotMove
from workspaces.pages import Request, page, workspace_or_404

VIEWS = (
    ("All open", ""),
    ("Needs me", "is:mine"),
    ("Unclaimed", "is:unclaimed"),
    ("Unknown outcome", "is:unknown"),
    ("Irreversible", "is:irreversible"),
    ("Past due", "is:overdue"),
)
VIEW_COUNT_MAX = 1_000
CLAIMS_MAX = 200
NEWS_MAX = 1_000
GONE_MAX = 100
EFFECTS_SHOWN_MAX = 12


@login_required
@require_GET
def queue(request: Request, workspace: str) -> HttpResponse:
    """A page of cases; every filter is in the address, and nothing changes by looking."""
    here = workspace_or_404(request, workspace)
    said = request.GET
    q, everything = said.get("q", "").strip(), "all" in said
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
        )
        number = str(search.count(here, q, by=request.user, everything=everything, found=found))
    except (search.QueryError, search.BadPlace) as wrong:
        context |= {"query_error": _mistake(here, q, wrong), "cases": [], "count": "0"}
        context["empty"] = _no_match(here, q)
        return page(request, "recovery/queue.html", context, part="rows", status=422)
    rows = [row(case, request.user) for case in found.cases]
    context |= {
        "cases": rows,
        "count": number,
        "sorts": _sorts(q, found.order),
        "pager": _pager(said, found, len(rows), number),
        "empty": None if rows else _empty(here, q),
        "peek": _peek(request, here, rows),
    }
    return page(request, "recovery/queue.html", context)


def _frame(request: Request, here: Workspace, q: str) -> dict[str, Any]:
    root, recovers = queue_url(here), may(request.user, "recover", here)
    return {
        "workspace": here,
        "q": q,
        "views": [
            {
                "name": name,
                "count": _view_count(here, query, request.user),
                "url": f"?{urlencode({'q': query})}" if query else root,
                "current": query == q,
            }
            for name, query in VIEWS
        ],
        "fresh_url": f"{root}fresh/?{urlencode({'q': q})}",
        "since": timezone.now().isoformat(),
        "may": {"recover": recovers},
        "claim_url": f"{root}claim/" if recovers else "",
    }


def _view_count(here: Workspace, query: str, person: User) -> str:
    found = search.matching(here, search.parse(query), by=person)
    return look.count(found.order_by()[: VIEW_COUNT_MAX + 1].count(), VIEW_COUNT_MAX)


def row(case: Case, person: User) -> dict[str, Any]:
    """One line of the queue, all of it formatted."""
    holder = casework.holder_of(case)
    return {
        "id": case.pk,
        "url": case_url(case),
        "peek_url": f"?peek={case.pk}",
        "risk": case.risk,
        "headline": _short(case),
        "request": case.request[:200],
        "run": case.run.run,
        "customer": case.customer_name or case.customer,
        "customer_id": case.customer,
        "state": case.state,
        "state_word": {"waiting": "Waiting"}.get(case.state, ""),
        "action": case.failed_tool,
        "target": case.failed_target,
        "suggestion": case.suggestion_text or case.get_suggestion_display(),
        "reversibility": case.reversibility,
        "approval": case.needs_approval or "None",
        "since": look.moment(case.failed_at, "span"),
        "due": due_words(case),
        "overdue": bool(case.due_at and case.due_at < timezone.now()),
        "claimant": "you" if holder == person else str(holder) if holder else "",
        "claimed_by_me": holder == person,
        "trace_url": trace_url(case.run.trace),
        "minor": case.amount_minor,
        "currency": case.currency,
        "irreversible": case.reversibility == "irreversible",
        "eligible": case.state == CaseState.OPEN and case.unknown_count == 0,
        "case": case,
    }


def _short(case: Case) -> str:
    """The trouble alone; else the headline without the agent, whom every line would begin with."""
    if case.brief:
        return case.brief
    agent = f"Agent “{case.agent.name}” " if case.agent else ""
    words = case.headline.removeprefix(agent)
    return f"{words[:1].upper()}{words[1:]}"


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


def _mistake(here: Workspace, q: str, wrong: ValueError) -> dict[str, Any]:
    if not isinstance(wrong, search.QueryError):
        return {"before": q, "at": "", "after": "", "message": str(wrong), "drops": []}
    place, end = wrong.position, wrong.position + wrong.length
    without = (q[:place] + q[end:]).strip()
    return {
        "before": q[:place],
        "at": q[place:end],
        "after": q[end:],
        "message": wrong.message,
        "drops": [{"label": "Leave this out", "url": f"?{urlencode({'q': without})}"}],
    }


def _empty(here: Workspace, q: str) -> dict[str, Any]:
    if q:
        return _no_match(here, q)
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
    closed = Case.objects.filter(workspace=here, closed_at__isnull=False)
    last = closed.order_by("-closed_at").values_list("closed_at", flat=True).first()
    text = f"The last case was closed {look.ago(last)}." if last else "No run has gone wrong."
    return {"icon": "clear", "title": "Nothing to recover", "text": text}


def _no_match(here: Workspace, q: str) -> dict[str, Any]:
    """What was asked, and each part that could be dropped."""
    parts = q.split()
    drops = [
        {
            "label": f"without {part}",
            "url": f"?{urlencode({'q': ' '.join(parts[:place] + parts[place + 1 :])})}",
        }
        for place, part in enumerate(parts[:8])
    ]
    links = [*drops, {"label": "All open", "url": queue_url(here), "main": True}]
    return {"icon": "search", "title": "No case fits", "text": f"Searched for: {q}", "links": links}


def _peek(request: Request, here: Workspace, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The case beside the list, if the address names one."""
    wanted = request.GET.get("peek", "")
    kept = {k: v for k, v in request.GET.items() if k != "peek"}
    for one in rows:
        one["peek_url"] = "?" + urlencode(kept | {"peek": one["id"]})
        one["here"] = str(one["id"]) == wanted
    if not wanted.isdigit():
        return None
    case = Case.objects.select_related("run", "agent", "workspace", "claimed_by").filter(
        pk=int(wanted), workspace=here
    )
    found = case.first()
    if found is None:
        return None
    effects = Effect.objects.filter(action__run=found.run_id, withdrawn=False).order_by(
        "-action__n", "-action__first_place", "-position"
    )
    shown = row(found, request.user)
    return shown | {
        "headline": found.headline,
        "close_url": "?" + urlencode(kept) if kept else queue_url(here),
        "facts": _facts(found, shown),
        "effects": [
            {
                "summary": effect.summary or f"changed {effect.target_type} {effect.target_id}",
                "target": f"{effect.target_type} {effect.target_id}",
                "reversibility": effect.reversibility,
                "until": f"undo {look.ago(effect.undo_until)}" if effect.undo_until else "",
            }
            for effect in effects[:EFFECTS_SHOWN_MAX]
        ],
        "reason": found.suggestion_reason,
        "acts": acts.offered(found, request.user),
    }


def _facts(case: Case, shown: dict[str, Any]) -> list[dict[str, Any]]:
    facts = [
        ("Run", case.run.run),
        ("Agent", case.agent.name if case.agent else "the desk"),
        ("Customer", shown["customer"]),
        ("Asked for", case.request[:400]),
        ("Failed", f"{case.failed_tool} {case.failed_target}".strip()),
        ("Needs approval", shown["approval"]),
        ("Due", shown["due"]),
        ("Claimed by", shown["claimant"] or "nobody"),
    ]
    return [{"name": name, "value": value} for name, value in facts if value]


@login_required
@require_GET
def fresh(request: Request, workspace: str) -> HttpResponse:
    """How many cases of this list are new since `since`, and which have left it."""
    here = workspace_or_404(request, workspace)
    since = parse_datetime(request.GET.get("since", "").replace(" ", "+"))
    now = timezone.now()
    if since is None:
        return JsonResponse({"new": 0, "since": now.isoformat()})
    try:
        query = search.parse(request.GET.get("q", ""))
    except search.QueryError:
        return HttpResponse(status=204)
    arrived = search.matching(here, query, by=request.user).filter(opened_at__gt=since)
    gone = Case.objects.filter(workspace=here, closed_at__gt=since).values_list("pk", flat=True)
    new, left = arrived.order_by()[:NEWS_MAX].count(), [str(pk) for pk in gone[:GONE_MAX]]
    if not new and not left:
        return HttpResponse(status=204)
    return JsonResponse({"new": new, "since": since.isoformat(), "gone": left})


@login_required
@require_POST
def claim(request: Request, workspace: str) -> HttpResponse:
    """Claim the chosen cases; what somebody else holds stays theirs, and the page says so."""
    from django.contrib import messages
    from django.shortcuts import redirect

    here = workspace_or_404(request, workspace)
    require(request.user, "recover", here)
    chosen = [int(pk) for pk in request.POST.getlist("case")[:CLAIMS_MAX] if pk.isdigit()]
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
