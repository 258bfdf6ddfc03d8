"""Runs: the list, and one run read back step by step from its events alone."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from amends.protocol.vocabulary import EventType
from ledger import disclosure, finding, replaying
from ledger.api import trace_url
from ledger.models import Event, Run, RunState
from ledger.schemas import IMPORTED
from workspaces import exporting, formatting, outbox, replica
from workspaces.access import may
from workspaces.models import APIKey, Workspace
from workspaces.pages import (
    Request,
    chips,
    named,
    page,
    page_by_moment,
    workspace_or_404,
    workspace_to,
)

QUERY_CHARACTERS_MAX = 200
STEP_DIGITS_MAX = 6
STATES = [(value, str(label)) for value, label in RunState.choices]
FIRST_RUNS_MAX = 50
"""Of an agent whose other keys are busy; a key that is heard of later is not looked for."""


@login_required
@require_GET
@replica.reads
def runs(request: Request, workspace: str) -> HttpResponseBase:
    """Runs, newest first; `q` is a run's id, or words of its request, errors, targets …"""
    here = workspace_or_404(request, workspace)
    q = request.GET.get("q", "").strip()[:QUERY_CHARACTERS_MAX]
    if q and Run.objects.filter(workspace=here, run=q).exists():
        return redirect("ledger:run", workspace=here.slug, run=q)
    found = Run.objects.filter(workspace=here).select_related("agent")
    state = request.GET.get("state", "")
    if state in RunState.values:
        found = _few(found.filter(state=state))
    if q:
        sees = disclosure.sees(request.user, here)
        found = finding.narrowed(found, here, q, state=state, sees=sees)
    if exporting.is_asked(request):
        return _export(request, here, found.order_by("-started_at", "-id"))
    shown, pager = page_by_moment(request, found, "started_at")
    context = {
        "workspace": here,
        "q": q,
        "views": chips(request, "state", [("", "All"), *STATES], state),
        "rows": [_row(here, run) for run in shown],
        "pager": pager,
        "empty": _empty(here, q or state),
    }
    return page(request, "ledger/runs.html", context)


def _few(found: QuerySet[Run]) -> QuerySet[Run]:
    """The same runs, by their keys where they are few: a list by date is walked through all others
    for those that are running."""
    keys = list(found.order_by().values_list("pk", flat=True)[: finding.HITS_MAX + 1])
    return found.filter(pk__in=keys) if len(keys) <= finding.HITS_MAX else found


def _export(request: Request, here: Workspace, found: QuerySet[Run]) -> HttpResponseBase:
    columns = ("run", "state", "request", "agent", "customer", "actions", "effects", "started_at",
               "ended_at")  # fmt: skip

    def read(keys: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        for one in exporting.in_order(Run.objects.select_related("agent"), keys):
            yield (one.run, one.state, one.request or one.goal, one.agent.name if one.agent else "",
                   one.customer_name or one.customer, one.action_count, one.effect_count,
                   one.started_at, one.ended_at)  # fmt: skip

    return exporting.answer(
        request,
        exporting.Export(
            "runs", columns, exporting.keys(found), read, disclosure.cleaner(request.user, here)
        ),
    )


@login_required
@require_GET
def first_of_key(request: Request, workspace: str, pk: int) -> HttpResponse:
    """The first run that a key told of; until there is one, the part asks again."""
    here = workspace_or_404(request, workspace)
    key = get_object_or_404(APIKey.objects.select_related("agent"), pk=pk, workspace=here)
    # Of the agent's first runs since the key was made, the first that the key spoke in.
    since = Run.objects.filter(
        workspace=key.workspace_id, agent=key.agent, started_at__gte=key.created_at
    )
    names = list(since.order_by("started_at", "id").values_list("run", flat=True)[:FIRST_RUNS_MAX])
    told = Event.objects.filter(workspace=key.workspace_id, run__in=names, key_prefix=key.prefix)
    heard = set(told.values_list("run", flat=True))
    run = next((name for name in names if name in heard), "")
    context = {
        "workspace": here,
        "key": key,
        "agent": key.agent.name,
        "run": run,
        "run_url": reverse("ledger:run", args=[here.slug, run]) if run else "",
        "poll_url": "" if run else reverse("ledger:first_of_key", args=[here.slug, pk]),
    }
    return page(request, "ledger/first_event.html", context, part="heard")


def _row(here: Workspace, run: Run) -> dict[str, Any]:
    return {
        "run": run.run,
        "url": reverse("ledger:run", args=[here.slug, run.run]),
        "state": run.state,
        "request": (run.request or run.goal).strip(),
        "nameless": "no words were recorded" if run.agent else "Recovery by the desk itself",
        "agent": run.agent.name if run.agent else "the desk",
        "customer": run.customer_name or run.customer,
        "actions": formatting.count(run.action_count),
        "effects": formatting.count(run.effect_count),
        "started": formatting.moment(run.started_at),
    }


def _empty(here: Workspace, is_narrowed: str) -> dict[str, Any]:
    if is_narrowed:
        return {
            "icon": "search",
            "title": "No run fits",
            "text": "Look for a run’s id, or words of its request, error, tools or targets.",
        }
    return {
        "icon": "run",
        "title": "No runs yet",
        "text": "They appear as soon as an agent sends its first event.",
        "links": [
            {"label": "Make a key", "url": f"/w/{here.slug}/settings/keys/", "main": True},
        ],
    }


@login_required
@require_GET
def run(request: Request, workspace: str, run: str) -> HttpResponse:
    """What the desk knew of the run after each of its events; `step` is the event's number."""
    here = workspace_or_404(request, workspace)
    found = _run_or_404(here, run)
    return _show(request, here, found, sensitive=False)


@login_required
@require_POST
def reveal(request: Request, workspace: str, run: str) -> HttpResponse:
    """The same page with payloads; that somebody saw them is on the record."""
    here = workspace_to("view_sensitive", request, workspace)
    found = _run_or_404(here, run)
    outbox.record(here, EventType.PAYLOAD_REVEALED, by=request.user, data={"run": found.run})
    return _show(request, here, found, sensitive=True)


def _run_or_404(here: Workspace, run: str) -> Run:
    found = Run.objects.select_related("agent").filter(workspace=here, run=run).first()
    if found is None:
        raise Http404("There is no such run here.")
    return found


def _show(request: Request, here: Workspace, found: Run, *, sensitive: bool) -> HttpResponse:
    url = reverse("ledger:run", args=[here.slug, found.run])
    step = request.GET.get("step", "")
    at = int(step) if step.isdecimal() and len(step) <= STEP_DIGITS_MAX else None
    context = {
        "workspace": here,
        "run": _row(here, found) | {"counts": _counts(found)},
        "facts": _facts(found),
        "trace_url": trace_url(found.trace),
        "replay": replaying.replay(found, at).shown(url, sensitive=sensitive),
        "sensitive": sensitive,
        "case": getattr(found, "case", None),
        "may_report": may(request.user, "recover", here),
        "may_administer": may(request.user, "administer", here),
        "may_reveal": not sensitive and may(request.user, "view_sensitive", here),
        "reveal_url": reverse("ledger:reveal", args=[here.slug, found.run]),
    }
    return page(request, "ledger/run.html", context, part="step")


def _facts(found: Run) -> list[dict[str, Any]]:
    return named(
        {
            "Agent": found.agent.name if found.agent else "the desk itself",
            "Model": found.model,
            "Goal": found.goal,
            "Trace": found.trace.get("trace_id") if isinstance(found.trace, dict) else "",
            "Labels": ", ".join(f"{k}={v}" for k, v in found.labels.items()),
            "Ended with": found.summary or found.reason or _error(found),
            "Source": "imported as reported: it passed no gate here" * (IMPORTED in found.flags),
            "Noticed": ", ".join(w.replace("_", " ") for w in found.flags if w != IMPORTED),
        }
    )


def _counts(found: Run) -> str:
    words = ((found.action_count, "action"), (found.effect_count, "effect"))
    return ", ".join(f"{formatting.count(n)} {word}{'' if n == 1 else 's'}" for n, word in words)


def _error(found: Run) -> str:
    error = found.error if isinstance(found.error, dict) else {}
    return ": ".join(str(error[name]) for name in ("type", "message") if error.get(name))
