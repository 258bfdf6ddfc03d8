"""Bulk: a dry run on frozen cases, the job that it becomes, and how each of its cases went."""

import re
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q
from django.http import Http404, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from amends.protocol.vocabulary import RISKS, Risk
from ledger import disclosure
from recovery import search
from recovery.casework import bulk
from recovery.casework.bulk_verbs import USUAL, VERBS, BulkDryRun, Eligible, VerbOption
from recovery.models import BulkItem, BulkItemState, BulkJob, CaseState
from recovery.models.cases import PUT_RIGHT
from recovery.run_facts.sentences import plural
from recovery.views import queue_rows
from recovery.views.request_context import case_url, queue_url
from workspaces import exporting, formatting
from workspaces.access import may, require
from workspaces.free_text import InvalidInput
from workspaces.models import Workspace
from workspaces.pages import Request, is_number, page, page_by_number, page_of, workspace_or_404

# What an item's state says to people. Submitted is not restored: that the case says itself.
ITEM_WORDS: dict[str, tuple[str, str]] = {
    BulkItemState.WAITING: ("calm", "Queued"),
    BulkItemState.WORKING: ("busy", "Running"),
    BulkItemState.DONE: ("calm", "Done"),
    BulkItemState.REFUSED: ("bad", "Refused"),
    BulkItemState.STOPPED: ("calm", "Stopped"),
}
MOVES = Q(case__state__in=(CaseState.RECOVERING, CaseState.RESUMING)) | Q(
    state=BulkItemState.DONE, case__state=CaseState.WAITING
)
"""Items, on whichever page of the job, that its figures go on counting without a hand on it."""
CASE_TONES: dict[str, str] = {
    CaseState.RECOVERING: "busy",
    CaseState.RESUMING: "busy",
    CaseState.WAITING: "wait",
}


# What files say of jobs, and of the cases of one.
JOBS: exporting.Columns = {
    "job": "pk",
    "state": bulk.state_of,
    "act": lambda one: VERBS[one.verb].label,
    "query": "query",
    "reason": "reason",
    "started_by": lambda one: str(one.started_by),
    "started_at": "started_at",
    "ended_at": "ended_at",
}
ITEMS: exporting.Columns = {
    "case": "case_id",
    "run": "case.run.run",
    "customer": lambda one: one.case.customer_name or one.case.customer,
    "state": "state",
    "detail": "detail",
    "case_state": "case.state",
    "outcome": "case.outcome",
}


@login_required
@require_GET
def jobs(request: Request, workspace: str) -> HttpResponseBase:
    here = workspace_or_404(request, workspace)
    found = BulkJob.objects.filter(workspace=here).select_related("started_by", "workspace")
    if exporting.is_asked(request):
        clean = disclosure.cleaner(request.user, here)
        return exporting.sheet(request, "bulk-jobs", found.order_by("-pk"), JOBS, clean)
    shown, pager = page_by_number(request, found.annotate(cases=Count("items")))
    context = {
        "workspace": here,
        "rows": [_head(job, job.cases) for job in shown],
        "pager": pager,
        "empty": {
            "icon": "bulk",
            "title": "No bulk jobs yet",
            "text": "Choose cases in the queue, or all cases of a cause, and act on them at once."
            " Each keeps its own plan and its own approval.",
            "links": [{"label": "Open the queue", "url": queue_url(here), "main": True}],
        },
    }
    return page(request, "recovery/bulk_jobs.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def new(request: Request, workspace: str) -> HttpResponse:
    """GET tries it on the cases chosen or found and writes nothing; POST starts what was shown."""
    here = workspace_or_404(request, workspace)
    if request.method == "POST":
        return _start(request, here)
    params = request.GET
    act, q = _act(request, here, params.get("act", "")), params.get("q", "").strip()
    chosen = [int(pk) for pk in params.getlist("case") if is_number(pk)]
    if len(chosen) == 1 and VERBS[act].alone:  # a preview of its own, which shows each call
        return redirect(f"/w/{here.slug}/cases/{chosen[0]}/{act}/")
    answer = _answer(params, act)
    try:
        seen = bulk.dry_run(
            here,
            act,
            by=request.user,
            query=q,
            everything=bool(params.get("all")),
            ids=chosen or None,
            chosen=answer,
        )
    except search.QueryError as wrong:
        return _show(request, here, BulkDryRun(act, q), problem=str(wrong), status=422)
    except bulk.TooManyCases as many:  # a good question, to which the answer is: ask for less
        return _show(request, here, BulkDryRun(act, q), problem=str(many))
    return _show(request, here, seen, picked=bool(chosen))


def _act(request: Request, here: Workspace, wanted: str) -> str:
    """What is asked for, if the person may; nothing means the usual, what nobody knows no page."""
    if wanted and wanted not in VERBS:
        raise Http404(f"There is no “{wanted[:20]}” for many cases.")
    require(request.user, VERBS[wanted or USUAL].permission, here)
    return wanted or USUAL


def _answer(params: QueryDict, act: str) -> str:
    choice = VERBS[act].choice
    return params.get(choice.name, "") if choice else ""


def _start(request: Request, here: Workspace) -> HttpResponse:
    posted = request.POST
    act, q = _act(request, here, posted.get("act", "")), posted.get("q", "")
    answer = _answer(posted, act)
    frozen = [one for item in posted.getlist("item") if (one := _frozen(item))]
    try:
        job = bulk.start(
            here,
            act,
            by=request.user,
            reason=posted.get("why", ""),
            frozen=frozen,
            query=q,
            chosen=answer,
        )
    except (InvalidInput, bulk.TooManyCases) as wrong:
        ids = [one.pk for one in frozen]
        seen = bulk.dry_run(here, act, by=request.user, query=q, ids=ids, chosen=answer)
        return _show(request, here, seen, picked=True, problem=str(wrong), status=422)
    messages.success(request, f"Started: {plural(len(frozen), 'case')}, one after the other.")
    return redirect("recovery:bulk_job", workspace=here.slug, pk=job.pk)


def _frozen(item: str) -> bulk.FrozenCase | None:
    """`id:revision:digest:restores`, as the dry run showed it."""
    pk, revision, digest, restores, *_ = [*item.split(":"), "", "", ""]
    if not (is_number(pk) and is_number(revision)):
        return None
    return bulk.FrozenCase(int(pk), int(revision), digest[:64], restores[:64])


UNREAD = "could not be read just now: it is looked at again when it is submitted"


def _show(
    request: Request,
    here: Workspace,
    seen: BulkDryRun,
    *,
    picked: bool = False,
    problem: str = "",
    status: int = 200,
) -> HttpResponse:
    number, verb = len(seen.eligible), VERBS[seen.verb]
    of_list = {"q": seen.query} | ({"all": "1"} if request.GET.get("all") else {})
    sensitive = disclosure.sees(request.user, here)
    context: dict[str, Any] = {
        "workspace": here,
        "queue_url": _list_url(here, of_list),
        "jobs_url": reverse("recovery:bulk", args=[here.slug]),
        "act": seen.verb,
        "q": seen.query,
        "label": verb.label,
        "number": plural(number, "case"),
        "tiles": tiles(seen),
        "eligible": [eligible(one) for one in sorted(seen.eligible, key=_as_in_the_queue)],
        "not_eligible": [
            {
                "url": case_url(one.case),
                "headline": queue_rows.trouble_of(one.case, sensitive=sensitive),
                "why": one.why,
            }
            for one in seen.not_eligible
        ],
        "why": request.POST.get("why", ""),
        "problem": problem,
        "why_not": "" if number else "no case is eligible",
        "others": _others(here, seen, of_list, picked=picked),
        "choice": _choice(here, verb.choice, seen) if verb.choice else None,
    }
    return page(request, "recovery/bulk_new.html", context, status=status)


def _as_in_the_queue(one: Eligible) -> tuple[int, float]:
    """The highest risk first, and of one risk what failed last."""
    return -RISKS.index(Risk(one.case.risk)), -one.case.failed_at.timestamp()


def _list_url(here: Workspace, of_list: dict[str, str]) -> str:
    return queue_url(here) + (f"?{urlencode(of_list)}" if any(of_list.values()) else "")


def _others(
    here: Workspace, seen: BulkDryRun, of_list: dict[str, str], *, picked: bool
) -> list[dict[str, str]]:
    """The other acts: on the same cases where somebody picked them, else on the same list."""
    url = reverse("recovery:bulk_new", args=[here.slug])
    picks = {"case": sorted(case.pk for case in seen.cases)} if picked else {}
    return [
        {
            "label": f"{verb.label} instead",
            "url": f"{url}?{urlencode({'act': act} | of_list | picks, doseq=True)}",
        }
        for act, verb in VERBS.items()
        if act != seen.verb and (seen.cases or not picked)
    ]


def _choice(here: Workspace, choice: VerbOption, seen: BulkDryRun) -> dict[str, Any]:
    """What can be chosen: in the form, or by another dry run of the same cases for each option."""
    url = reverse("recovery:bulk_new", args=[here.slug])
    same = {"act": seen.verb, "q": seen.query, "case": sorted(case.pk for case in seen.cases)}
    chosen = seen.chosen or choice.default
    return {
        "name": choice.name,
        "question": choice.question,
        "note": choice.note,
        "redraws": choice.redraws,
        "chosen": chosen,
        "options": [
            {
                "value": one.value,
                "label": one.label,
                "note": one.note,
                "selected": one.value == chosen,
                "url": f"{url}?{urlencode(same | {choice.name: one.value}, doseq=True)}",
            }
            for one in choice.options(here, seen)
        ],
    }


def tiles(seen: BulkDryRun) -> list[dict[str, str]]:
    """What it adds up to, before anybody agrees to it."""
    money = [formatting.money(minor, currency) for currency, minor in sorted(seen.amounts.items())]
    return [
        {"name": "Eligible", "value": formatting.count(len(seen.eligible))},
        {"name": "Not eligible", "value": formatting.count(len(seen.not_eligible))},
        {"name": "Customers", "value": formatting.count(seen.customers)},
        {"name": "Money", "value": " + ".join(money) or "none"},
        {"name": "Irreversible", "value": formatting.count(seen.irreversible)},
        *(
            [{"name": "Not read yet", "value": formatting.count(seen.unread)}]
            if seen.unread
            else []
        ),
    ]


def eligible(one: Eligible) -> dict[str, Any]:
    return {
        "value": f"{one.case.pk}:{one.case.revision}:{one.digest}:{one.restores}",
        "url": case_url(one.case),
        "headline": one.headline,
        "run": one.case.run.run,
        "customer": one.case.customer_name or one.case.customer,
        "customer_id": one.case.customer,
        "minor": one.money.amount_minor if one.money else "",
        "currency": one.money.currency if one.money else "",
        "digits": formatting.digits_of(one.money.currency) if one.money else "",
        "irreversible": one.reversibility == "irreversible",
        "risk": one.case.risk,
        "reversibility": one.reversibility,
        "approval": one.approval or "None",
        "note": UNREAD if one.unread else "",
    }


@login_required
@require_GET
def job(request: Request, workspace: str, pk: int) -> HttpResponseBase:
    here = workspace_or_404(request, workspace)
    if exporting.is_asked(request):
        found = get_object_or_404(BulkJob, workspace=here, pk=pk)
        items = found.items.select_related("case__run").order_by("pk")
        clean = disclosure.cleaner(request.user, here)
        return exporting.sheet(request, f"bulk-job-{pk}", items, ITEMS, clean)
    return page(request, "recovery/bulk_job.html", _job(request, here, pk))


@login_required
@require_GET
def progress(request: Request, workspace: str, pk: int) -> HttpResponse:
    """How far it is, alone: asked again while it runs."""
    here = workspace_or_404(request, workspace)
    return page(request, "recovery/bulk_job.html", _job(request, here, pk), part="progress")


@login_required
@require_POST
def stop(request: Request, workspace: str, pk: int) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    found = get_object_or_404(BulkJob, workspace=here, pk=pk)
    require(request.user, VERBS[found.verb].permission, here)
    left = bulk.stop(found, by=request.user)
    stay = "stays as it is" if left == 1 else "stay as they are"
    words = f"Stopped. {plural(left, 'case')} that had not begun {stay}."
    messages.success(request, words if left else "Nothing was left to stop.")
    return redirect("recovery:bulk_job", workspace=here.slug, pk=pk)


def _job(request: Request, here: Workspace, pk: int) -> dict[str, Any]:
    found = get_object_or_404(BulkJob.objects.select_related("started_by"), workspace=here, pk=pk)
    items = found.items.select_related("case__run", "case__workspace")
    after = request.GET.get("after", "")
    if is_number(after):
        items = items.filter(pk__gt=int(after))
    shown, pager = page_of(request, items.order_by("pk"), lambda item: item.pk)
    url = reverse("recovery:bulk_job", args=[here.slug, pk])
    living = found.ended_at is None and found.stopped_at is None
    moving = living or found.items.filter(MOVES).exists()
    counts, verb = bulk.counts(found), VERBS[found.verb]
    sensitive = disclosure.sees(request.user, here)
    inbox = reverse("approvals:inbox", args=[here.slug])
    asked_url = f"{inbox}?{urlencode({'view': 'all', 'q': f'job:{pk}'})}"
    return {
        "workspace": here,
        "jobs_url": reverse("recovery:bulk", args=[here.slug]),
        "job": _head(found, found.items.count())
        | {"list_url": _list_url(here, {"q": found.query})},
        "counts": [
            {
                "name": name,
                "value": formatting.count(counts.get(key, 0)),
                "url": asked_url if key == "asked" and counts.get(key) else "",
            }
            for name, key in (
                ("Queued", BulkItemState.WAITING),
                ("In hand", BulkItemState.WORKING),
                (verb.done, BulkItemState.DONE),
                ("Waiting for approval", "asked"),
                ("Restored", "restored"),
                ("Refused", BulkItemState.REFUSED),
                ("Stopped", BulkItemState.STOPPED),
            )
            if (key not in {"restored", "asked"} or verb.restores)
            and (key != BulkItemState.WORKING or counts.get(key))
        ],
        "items": [_item(found, one, sensitive=sensitive) for one in shown],
        "pager": pager,
        "progress_url": f"{url}progress/?{urlencode({'after': after})}" if moving else "",
        "stop_url": f"{url}stop/" if living and may(request.user, verb.permission, here) else "",
    }


FINGERPRINT = re.compile(r"\b[0-9a-f]{64}\b")


def _head(one: BulkJob, count: int) -> dict[str, Any]:
    state = bulk.state_of(one)
    return {
        "id": one.pk,
        "url": reverse("recovery:bulk_job", args=[one.workspace.slug, one.pk]),
        "title": f"{VERBS[one.verb].label} {plural(count, 'case')}",
        "query": FINGERPRINT.sub(lambda found: formatting.digest(found[0]) + "…", one.query),
        "tone": {"running": "busy", "ended": "calm", "stopped": "calm"}[state],
        "state": state.capitalize(),
        "reason": one.reason,
        "by": str(one.started_by),
        "started": formatting.moment(one.started_at),
    }


def _item(job: BulkJob, item: BulkItem, *, sensitive: bool) -> dict[str, Any]:
    tone, word = ITEM_WORDS.get(item.state, ("calm", item.state))
    if item.state == BulkItemState.DONE:
        word = VERBS[job.verb].done
    case = item.case
    ending = case.get_outcome_display() if case.outcome else case.get_state_display()
    return {
        "id": item.pk,
        "url": case_url(case),
        "headline": queue_rows.trouble_of(case, sensitive=sensitive),
        "run": case.run.run,
        "customer": case.customer_name or case.customer,
        "tone": tone,
        "word": word,
        "detail": item.detail,
        "case_tone": "ok" if case.outcome in PUT_RIGHT else CASE_TONES.get(case.state, "calm"),
        "case_word": ending.capitalize(),
    }
