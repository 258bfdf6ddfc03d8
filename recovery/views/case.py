"""One case: understood in ten seconds, acted on in thirty."""

from itertools import starmap
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.html import format_html
from django.views.decorators.http import require_GET, require_POST
from django_htmx.http import HttpResponseClientRefresh

from approvals import pauses
from approvals.models import PauseKind
from ledger import disclosure
from ledger.models import Reversibility, RunState
from recovery import search
from recovery.cases.lifecycle import REFUSALS, holder_of
from recovery.casework import cases, closing
from recovery.engine import plan_lifecycle
from recovery.models import Case, CaseState, Correction, Report, ReportSource
from recovery.models.cases import PUT_RIGHT
from recovery.models.plans import LIVING
from recovery.planning import plans, previews
from recovery.run_facts.runs import RunFacts, facts_of
from recovery.run_facts.sentences import listed, many, plural
from recovery.tasks import run_plan
from recovery.triage.causes import title
from recovery.views import (
    acts,
    close,
    compensate,
    confirm,
    correction_ways,
    plan_card,
    queue_rows,
    request_context,
    story,
    teach,
)
from recovery.views.request_context import (
    case_or_404,
    case_to_recover,
    case_url,
    head,
    list_of,
    queue_url,
)
from workspaces import formatting
from workspaces.access import may, require
from workspaces.erasure_registry import ERASED
from workspaces.free_text import InvalidInput
from workspaces.models import User
from workspaces.moves import CannotMove
from workspaces.pages import Request, folded, named, page
from workspaces.wakeups import wake_on_commit

# What stands below a case: its evidence, its relatives, what was done about it, its correction.

TABS = ("evidence", "related", "activity", "correction")
RELATED_MAX = 20


def tabs(case: Case, tab: str, kept: str = "") -> list[dict[str, Any]]:
    """The tabs as links; `kept` is the query string that they must not lose."""
    ending = f"&{kept}" if kept else ""
    counts = {"activity": case.comments.count()}
    return [
        {
            "label": name.capitalize(),
            "url": f"?tab={name}{ending}#more",
            "current": name == tab,
            "count": counts.get(name, 0),
        }
        for name in TABS
    ]


def chosen(request: Request, case: Case, facts: RunFacts, tab: str) -> dict[str, Any]:
    recovers = may(request.user, "recover", case.workspace)
    if tab == "activity":
        return {
            "activity": story.activity(case),
            "comment_url": f"{case_url(case)}comment/" if recovers else "",
        }
    if tab == "related":
        sensitive = disclosure.sees(request.user, case.workspace)
        return {"related": _related(case, sensitive=sensitive)}
    if tab == "correction":
        return {
            "corrections": corrections_of(case, recovers=recovers),
            "draft_url": f"{case_url(case)}corrections/" if recovers else "",
        }
    return {"evidence": _evidence(case, facts)}


def _evidence(case: Case, facts: RunFacts) -> list[dict[str, Any]]:
    run = facts.run
    agent = " · ".join(filter(None, (run.agent.name, run.model))) if run.agent else "the desk"
    return named(
        {
            "Opened because": ", ".join(case.reasons).replace("_", " "),
            "Agent": agent,
            "Goal": run.goal,
            "Run state": run.state,
            "Ledger": f"events {run.first_place} to {run.last_place}",
            "Cause": title(case.cause) if case.cause else "",
            "Flags": ", ".join(run.flags).replace("_", " "),
        }
    )


def _related(case: Case, *, sensitive: bool) -> list[dict[str, Any]]:
    alike = Q(cause=case.cause_id) if case.cause_id else Q(pk=None)
    if case.customer not in ("", ERASED):  # of two who are forgotten nobody knows more
        alike |= Q(customer=case.customer)
    found = (
        Case.objects.select_related("run", "workspace", "agent")
        .filter(alike, workspace=case.workspace)
        .exclude(pk=case.pk)
        .order_by("-failed_at", "-id")
    )
    return [
        {
            "url": case_url(one),
            "headline": queue_rows.trouble_of(one, sensitive=sensitive),
            "state": one.state,
            "words": " · ".join(filter(None, (one.run.run, one.customer_name or one.customer))),
            "same": "cause" if case.cause_id and one.cause_id == case.cause_id else "customer",
        }
        for one in found[:RELATED_MAX]
    ]


def corrections_of(case: Case, *, recovers: bool = False) -> list[dict[str, Any]]:
    """What each affected person is told of the case, the newest first."""
    found = Correction.objects.filter(case=case).select_related("case__workspace")
    if recovers:
        found = found.prefetch_related("deliveries")
    return [
        {
            "state": one.state,
            "url": f"/w/{case.workspace.slug}/corrections/{one.pk}/",
            "words": f"{one.reference}: {one.title}",
            "person": one.person_name or one.person_id,
            "contested": one.still_wrong_at is not None,
            "handed": correction_ways.handing(one) if recovers else {},
        }
        for one in found.order_by("-pk")[:CORRECTIONS_SHOWN_MAX]
    ]


CORRECTIONS_SHOWN_MAX = 50
EFFECTS_SHOWN_MAX = 200
PLAIN_SHOWN_MAX = 100
"""Of more effects those behind the newest are shown where they do not only stand."""
REPORTS_SHOWN_MAX = 5
LEFT_SHOWN_MAX = 200


WAITING = {
    "waiting": "Nothing runs before the people whom the policy names have agreed.",
    "resuming": "The agent was told where to go on. If it does not answer, the case returns.",
}


@login_required
@require_GET
def case(request: Request, workspace: str, pk: int) -> HttpResponse:
    found = case_or_404(request, workspace, pk)
    cases.touch(found, by=request.user)
    return page(request, "recovery/case.html", _context(request, found))


@login_required
@require_GET
def progress(request: Request, workspace: str, pk: int) -> HttpResponse:
    """The plan's part of the page, while it runs, and what is to be done. When it is over the whole
    page is new, as when the case has been closed since, and when its correction stands.
    """
    found = case_or_404(request, workspace, pk)
    context = _context(request, found) | {"renews": True}
    if request.htmx and (context["plan"] or {}).get("progress_url") != request.get_full_path():
        return HttpResponseClientRefresh()
    return page(request, "recovery/case.html", context, part="plan")


@login_required
@require_GET
def outlook(request: Request, workspace: str, pk: int) -> HttpResponse:
    """What compensating would do, with the targets as they are now: loaded when the page stands."""
    found = case_or_404(request, workspace, pk)
    require(request.user, "recover", found.workspace)
    draft = plans.draft(found, most=compensate.OUTLOOK_STEPS_MAX)
    sensitive = disclosure.sees(request.user, found.workspace)
    context = {
        "workspace": found.workspace,
        "case": head(found, request.user),
        "outlook": compensate.outlook(draft, sensitive=sensitive),
        "outlook_preview": f"{case_url(found)}compensate/",
    }
    return page(request, "recovery/case.html", context, part="outlook")


def _context(request: Request, case: Case, *, tab: str = "") -> dict[str, Any]:
    facts = facts_of(case.run)
    offered = acts.offered(case, request.user)
    preview = f"{case_url(case)}compensate/"
    compensates = any(one["url"] == preview and not one["why_not"] for one in offered)
    sensitive = disclosure.sees(request.user, case.workspace)
    tab = tab or request.GET.get("tab", TABS[0])
    tab = tab if tab in TABS else TABS[0]
    kept = list_of(request)
    plan = plan_card.card(case, request.user, sensitive=sensitive)
    notices = _notices(case, facts, request.user)
    if any("main" in link for one in notices for link in one.get("links", ())):
        # Somebody waits for an answer: that ends a case, whoever may give it.
        offered = [one | {"main": one["main"] and one["key"] != "e"} for one in offered]
    return {
        "workspace": case.workspace,
        "case": head(case, request.user)
        | {"opened_because": ", ".join(case.reasons).replace("_", " ")}
        | {"word": _word(case, plan or {})},
        "queue_url": f"{queue_url(case.workspace)}?{kept}" if kept else queue_url(case.workspace),
        "neighbours": _neighbours(request, case, kept),
        "reopen_url": _reopen_url(case, request.user),
        "claim": _claim(case, request.user, kept),
        "handing": acts.handing(case, request.user),
        "acts": offered,
        "acts_why": acts.why_not(offered),
        "outlook_url": f"{case_url(case)}outlook/" if compensates else "",
        "outlook_preview": preview,
        "suggestion": _suggestion(case, plan or {}),
        "story": story.of(case, facts, sensitive=sensitive),
        **_effects(facts, request.user, led=[one["url"] for one in offered]),
        "plan": plan,
        "notices": notices,
        "pausing": pauses_offered(case, request.user),
        "residue": _residue(case),
        "tab": tab,
        "tabs": tabs(case, tab, kept),
        **chosen(request, case, facts, tab),
    }


def _neighbours(request: Request, case: Case, kept: str) -> dict[str, str]:
    """The cases above and below in the list that this one was opened from."""
    params = request.GET
    try:
        found = search.neighbours(
            case.workspace,
            case,
            params.get("q", ""),
            by=request.user,
            order=params.get("sort", search.DEFAULT_ORDER),
            everything=bool(params.get("all")),
        )
    except search.QueryError:
        return {}
    ending = f"?{kept}" if kept else ""
    return {
        side: f"/w/{case.workspace.slug}/cases/{one.pk}/{ending}"
        for side, one in zip(("previous", "next"), found, strict=True)
        if one is not None
    }


def _reopen_url(case: Case, person: User) -> str:
    closed = case.state == CaseState.CLOSED
    return f"{case_url(case)}reopen/" if closed and may(person, "recover", case.workspace) else ""


def _claim(case: Case, person: User, kept: str) -> dict[str, Any] | None:
    """`kept` is the list that it was opened from, which whoever claims it goes on with."""
    if case.state == CaseState.CLOSED or not may(person, "recover", case.workspace):
        return None
    holder, url = holder_of(case), f"{case_url(case)}claim/"
    return {
        "by": str(holder) if holder else "",
        "mine": holder == person,
        "url": f"{url}?{kept}" if kept else url,
        "until": formatting.moment(case.claimed_until, "clock") if holder else "",
    }


def _suggestion(case: Case, plan: dict[str, Any]) -> dict[str, str] | None:
    """The next step and its reason; what is waited for while nothing is to be done."""
    if case.state == CaseState.CLOSED:
        return None
    if case.state != CaseState.OPEN:
        word, goes = _word(case, plan), plan.get("goes", "")
        reason = goes if word else WAITING.get(case.state, goes)
        return {"title": word or case.get_state_display().capitalize(), "reason": reason}
    teaches = case.suggestion_text.startswith(previews.TEACH)
    title = case.suggestion_text if teaches else case.get_suggestion_display().capitalize()
    return {"title": title, "reason": case.suggestion_reason}


def _word(case: Case, plan: dict[str, Any]) -> str:
    """That of its plan, where it waits for people no more."""
    waits = case.state == CaseState.WAITING and plan and not plan["is_asked"]
    return str(plan["word"]) if waits else ""


def _notices(case: Case, facts: RunFacts, person: User) -> list[dict[str, Any]]:
    """What stands above all else: reports and what waits for a word, or how the case ended."""
    if case.state != CaseState.CLOSED:
        reports = facts.reports[-REPORTS_SHOWN_MAX:]
        contested = any(one.source == ReportSource.END_USER for one in facts.reports)
        answers = correction_ways.to_answer(case, person) if contested else {}
        shown = [_reported(one) | {"links": answers.pop(one.text, [])} for one in reports]
        return [
            *starmap(correction_ways.waits, answers.items()),  # older than what is shown
            *shown,
            *(confirm.notices(case, facts) if may(person, "recover", case.workspace) else []),
        ]
    who, why = case.closed_by or "the desk itself", case.closing_reason
    said = correction_ways.said(why) if case.closed_by and why else {"text": why}  # the desk's own
    when = formatting.moment(case.closed_at) if case.closed_at else ""
    text = format_html("by {} {}{} {}", who, when, ":" if "whole" in said else ".", said["text"])
    tone = "ok" if case.outcome in PUT_RIGHT else "calm"
    title = f"Closed as {case.get_outcome_display().lower()}"
    notice: dict[str, Any] = {**said, "tone": tone, "title": title, "text": text}
    for correction in corrections_of(case)[:1]:
        is_how = correction_ways.IS_HOW[correction["state"]]
        label = f"The correction for {formatting.person(correction['person'])} {is_how}"
        notice["links"] = [{"label": label, "url": correction["url"]}]
    return [notice, *correction_ways.unanswered(case, person)]


def _reported(one: Report) -> dict[str, Any]:
    who = str(one.person) if one.person else f"The {one.get_source_display()}"
    verdicts = {None: None, True: ", and was right", False: ", and has an answer"}
    told = "" if one.text == ERASED else verdicts[one.upheld]
    verb, tone = ("reports", "wait") if told is None else ("reported", "calm")
    title = format_html("{} {} {}{}:", who, verb, formatting.moment(one.at), told or "")
    return {"tone": tone, "title": title, **correction_ways.said(one.text)}


def _effects(facts: RunFacts, person: User, *, led: list[str]) -> dict[str, Any]:
    """The newest first; of a long list those that only stand in folds. `led`: what acts lead to."""
    untold = facts.untold()
    newest_first = [
        (action, effect)
        for action in reversed(facts.actions)
        for effect in (
            [None] if action.pk in untold else reversed(facts.effects.get(action.pk, ()))
        )
    ]
    shown = newest_first[:EFFECTS_SHOWN_MAX]
    taught = teach.urls(facts, [effect for _, effect in shown], person)
    urls = [{"teach_url": "" if url in led else url} for url in taught]
    lines = [line | url for line, url in zip(story.lines(facts, shown), urls, strict=True)]
    kept = lines[:PLAIN_SHOWN_MAX] + [x for x in lines[PLAIN_SHOWN_MAX:] if not _is_plain(x)]
    count = max(len(newest_first), facts.whole.effects if facts.whole else 0)
    more, what = count - len(kept), "other" if facts.whole else "older one"
    stand = f" in all, {formatting.count(facts.standing_count)} stand" if facts.whole else ""
    return {
        "effects": folded(kept, _is_plain, story.in_short),
        "effects_count": f"{formatting.count(count)}{stand}",
        "effects_left_out": many(more, what) if more else "",
    }


def _is_plain(line: dict[str, Any]) -> bool:
    """Whether it stands, or was seen to, as most do, and nothing is to be done about the line."""
    lasting = line["reversibility"] == Reversibility.IRREVERSIBLE
    stands = line["is_over"] or line["standing"] == story.STANDS
    return stands and not lasting and not line["teach_url"]


def _residue(case: Case) -> list[dict[str, Any]]:
    found = closing.residues_of(case.workspace).filter(case=case)
    left = list(found.select_related(None).select_related("owner", "done_by")[:LEFT_SHOWN_MAX])
    for one in left:
        one.case = case
    return [close.residue_row(one) for one in left]


@login_required
@require_POST
def comment(request: Request, workspace: str, pk: int) -> HttpResponse:
    case = case_to_recover(request, workspace, pk)
    try:
        cases.comment(case, by=request.user, text=request.POST.get("comment", ""))
    except REFUSALS as refusal:
        return refused(request, case, refusal, "comment", tab="activity")
    return redirect(f"{case_url(case)}?tab=activity#more")


@login_required
@require_POST
def stop(request: Request, workspace: str, pk: int) -> HttpResponse:
    """Stop what has not been sent, and say what is on the wire."""
    case = case_to_recover(request, workspace, pk)
    plan = case.plans.filter(state__in=LIVING).first()
    if plan is None:
        messages.info(request, "No plan was running any more.")
        return redirect(case_url(case))
    try:
        stopped = plan_lifecycle.stop(plan, by=request.user)
    except CannotMove:  # it ended while we came; nothing was left to stop
        messages.info(request, "The plan had ended already: nothing was left to stop.")
        return redirect(case_url(case))
    wake_on_commit(run_plan, plan.pk)  # ends it, where nothing is on the wire
    words = f"Stopped: {plural(stopped.cancelled, 'step')} cancelled."
    if stopped.on_the_wire:
        wire = listed([f"step {one.position}" for one in stopped.on_the_wire])
        words += f" What was sent is seen through: {wire}."
    messages.success(request, words)
    return redirect(case_url(case))


@login_required
@require_POST
def reopen(request: Request, workspace: str, pk: int) -> HttpResponse:
    case = case_to_recover(request, workspace, pk)
    try:
        cases.reopen(
            case,
            by=request.user,
            seen=request_context.seen_revision(request),
            reason=request.POST.get("why", ""),
        )
    except REFUSALS as refusal:
        return refused(request, case, refusal, "why", asked="reopen")
    return redirect(case_url(case))


@login_required
@require_POST
def pause(request: Request, workspace: str, pk: int) -> HttpResponse:
    case = case_to_recover(request, workspace, pk)
    kind, why = request.POST.get("kind", ""), request.POST.get("why", "")
    name = _pausable(case).get(kind)
    if name is None:
        gone = CannotMove(case, "paused", "Nothing was stopped: it is not there any more.")
        return refused(request, case, gone, "why", asked="pause")
    try:
        pauses.pause(case.workspace, kind, name, by=request.user, reason=why)
    except (CannotMove, InvalidInput) as refusal:
        return refused(request, case, refusal, "why", asked="pause")
    what = f"{PauseKind(kind).label} {formatting.named(name)}"
    messages.success(request, f"{what} is stopped until it is lifted.")
    return redirect(case_url(case))


PICKED = {"pause": "kind", "handing": "to", "snooze": "hours"}
"""What is chosen in a form besides what is typed: another choice would be another act."""


def refused(
    request: Request, case: Case, refusal: Exception, field: str, *, tab: str = "", asked: str = ""
) -> HttpResponse:
    """The case as it now stands, why nothing was done, and what was typed; 409, or 422 where that
    is what is wrong. `asked` is the form on the page that it was typed into, if it stands in one.
    """
    fresh = case_to_recover(request, case.workspace.slug, case.pk)
    context = _context(request, fresh, tab=tab)
    typed, hands = request.POST.get(field, ""), context["handing"] or {}
    is_there = {
        "reopen": context["reopen_url"],
        "pause": context["pausing"],
        "handing": hands,
        "snooze": hands.get("hours") and not hands["until"],
    }.get(asked, True)
    problem = {"tone": "bad", "title": "Nothing was changed.", "text": str(refusal)}
    if is_there:
        picked = request.POST.get(PICKED.get(asked, ""), "")
        context |= {"typed": typed, "asked": asked or field, "picked": picked}
    else:
        problem["typed"] = typed
    context["notices"] = [problem, *context["notices"]]
    status = 422 if isinstance(refusal, InvalidInput) else 409
    return page(request, "recovery/case.html", context, status=status)


def pauses_offered(case: Case, person: User) -> dict[str, Any] | None:
    """What can be stopped from here, for who may; the narrowest first."""
    if case.agent is None or not may(person, "recover", case.workspace):
        return None
    return {
        "url": f"{case_url(case)}pause/",
        "choices": [
            {"value": kind, "label": f"{PauseKind(kind).label} {formatting.named(name)}"}
            for kind, name in _pausable(case).items()
        ],
    }


def _pausable(case: Case) -> dict[str, str]:
    found = {
        PauseKind.RUN: case.run.run if case.run.state == RunState.RUNNING else "",
        PauseKind.AGENT: case.agent.name if case.agent else "",
        PauseKind.TOOL: case.failed_action.tool if case.failed_action else "",
    }
    return {str(kind): name for kind, name in found.items() if name}
