"""Corrections for operators: the list, the words, publishing and revoking."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from ledger import disclosure
from recovery import corrections
from recovery.cases.lifecycle import REFUSALS, OutOfDate
from recovery.corrections import contesting, publishing, wording
from recovery.corrections.facts import without_values
from recovery.corrections.sentences import review_words
from recovery.models import CaseState, Contest, Correction, CorrectionState
from recovery.run_facts.sentences import plural
from recovery.views import correction_ways
from recovery.views.public import trail_context
from recovery.views.request_context import case_to_recover, case_url, seen_revision
from workspaces import clock, exporting, formatting
from workspaces.access import may, require
from workspaces.models import Workspace
from workspaces.moves import CannotMove
from workspaces.pages import (
    Request,
    chips,
    counted,
    is_number,
    page,
    page_by_number,
    private,
    workspace_or_404,
    workspace_to,
)

# What the page of one correction shows to operators.

MARKS = {
    **dict.fromkeys(("restored", "compensated", "corrected", "as_before"), "ok"),
    "not_undone": "bad",
}


def card(request: Request, one: Correction) -> dict[str, Any]:
    here = one.workspace
    is_draft = one.state == CorrectionState.DRAFT
    recovers = may(request.user, "recover", here)
    sees = _sees(request, here)
    facts = one.facts if sees else without_values(one.facts)
    urls = {
        name: reverse(f"recovery:correction_{name}", args=[here.slug, one.pk])
        for name in ("save", "publish", "revoke", "preview")
    }
    hindrance = publishing.why_not(one) if is_draft else ""
    return {
        "workspace": here,
        "correction": {
            "number": one.reference,
            "state": one.state,
            "title": one.title,
            "lead": one.lead,
            "person": one.person_name or one.person_id,
            "contact": one.contact,
            "case_url": case_url(one.case),
            "run": one.case.run.run,
            "revision": one.revision,
            "expires": formatting.moment(one.expires_at, "day") if one.expires_at else "",
        },
        "corrections_url": reverse("recovery:corrections", args=[here.slug]),
        "facts_changed": [_fact(one, item, sees=sees) for item in facts["items"]],
        "erased": one.is_erased,
        "reviewed": "" if one.is_erased else review_words(one.facts),
        "delivery": _ways(one, _chosen(request)) if is_draft else [],
        "lifetimes": _lifetimes(one, _chosen(request)) if is_draft else [],
        "contests": [_contest(one, found, request) for found in one.contests.order_by("-pk")],
        "link": corrections.link_of(one) if recovers else "",
        "way": correction_ways.way(one),
        "preview_url": urls["preview"] if sees and not one.is_erased else "",
        "save_url": urls["save"],
        "publish_url": urls["publish"] if is_draft and not one.is_erased else "",
        "handed": correction_ways.handing(one) if recovers else {},
        "revoke_url": urls["revoke"]
        if one.state == CorrectionState.PUBLISHED and not one.is_erased
        else "",
        "publish_label": f"Publish for {one.person_name or one.person_id}",
        "why_not": ""
        if one.is_erased
        else hindrance or ("" if recovers else "This needs the permission to recover."),
    }


def _sees(request: Request, here: Workspace) -> bool:
    """Whether a reader is shown what is told, which holds values; whoever recovers has to be."""
    return may(request.user, "recover", here) or disclosure.sees(request.user, here)


def _fact(one: Correction, item: dict[str, Any], *, sees: bool) -> dict[str, Any]:
    return {
        "mark": MARKS.get(item["outcome"], "calm"),
        "what": item["what"],
        "did": item["did"],
        "state_word": item["word"],
        "field": f"word-{item['id']}",
        "wording": one.wording.get(item["id"], "") if sees else "",
    }


def _chosen(request: Request) -> dict[str, str]:
    """How it goes and for how long, as somebody chose it: a refusal and a save of the words keep
    that, or a letter that was to be handed on would be mailed.
    """
    said = request.POST or request.GET
    return {name: said[name] for name in ("delivery", "valid_days") if name in said}


def _ways(one: Correction, chosen: Mapping[str, str]) -> list[dict[str, Any]]:
    language = wording.LANGUAGES.get(one.language, "English, for their language is not known")
    labels = {
        publishing.MAIL: ("By mail", f"to {one.contact or 'nobody'}, in {language}"),
        publishing.WEBHOOK: ("By signed webhook", "to your own product, which shows it"),
        publishing.LINK: ("By a link", "that you copy and hand on yourself"),
    }
    hindrances = {way: publishing.why_not_by(one, [way]) for way in labels}
    possible = [way for way in labels if not hindrances[way]]
    wanted = chosen.get("delivery")
    first = wanted if wanted in possible else possible[0]
    return [
        {
            "value": way,
            "label": label,
            "note": note,
            "selected": way == first,
            "why_not": hindrances[way],
        }
        for way, (label, note) in labels.items()
    ]


def _lifetimes(one: Correction, chosen: Mapping[str, str]) -> list[dict[str, Any]]:
    usual = chosen.get("valid_days") or str(wording.settings_of(one.workspace).valid_days)
    return [
        {"value": days, "label": f"{days} days", "selected": str(days) == usual}
        for days in wording.DAYS
    ]


def _contest(one: Correction, found: Contest, request: Request) -> dict[str, Any]:
    """What the person contests, and whether whoever reads this may answer it."""
    here = one.workspace
    hindrance = contesting.why_not_by(found, request.user)
    if not may(request.user, "recover", here):
        hindrance = correction_ways.NO_RIGHT
    return {
        "receipt": found.receipt,
        "ground": found.get_ground_display(),
        "text": found.text,
        "begins": correction_ways.said(found.text)["text"]
        if len(found.text) > correction_ways.SAID_CHARACTERS_MAX
        else "",
        "at": formatting.moment(found.at),
        "due": formatting.ago(found.due_at),
        "overdue": found.answered_at is None and found.due_at < clock.now(),
        "answered": formatting.moment(found.answered_at) if found.answered_at else "",
        "answered_by": str(found.answered_by or ""),
        "verdict": "The person was right" if found.upheld else "It stays as it is",
        "answer": found.answer,
        "url": reverse("recovery:contest", args=[here.slug, one.pk, found.pk]),
        "why_not": hindrance if one.token_digest else contesting.NOBODY,
        "nobody": not one.token_digest,
        "link_is_dead": not publishing.is_readable(one),
        "are_told": bool(
            correction_ways.tells_of(one, found) if found.answered_at else contesting.told_by(one)
        ),
        "where": PUT_RIGHT_AGAIN if one.case.state == CaseState.CLOSED else PUT_RIGHT,
    }


PUT_RIGHT = "Its case is open again: put it right there."
PUT_RIGHT_AGAIN = "Its case was closed since: reopen it, and put it right there."
VIEWS: dict[str, tuple[str, dict[str, Any]]] = {
    "all": ("All", {}),
    "draft": ("Drafts", {"state": CorrectionState.DRAFT}),
    "unread": ("Not opened", {"state": CorrectionState.PUBLISHED, "first_read_at": None}),
    "published": ("Published", {"state": CorrectionState.PUBLISHED}),
    "answer": (
        "To be answered",
        {"pk__in": Contest.objects.waiting().values("correction")},
    ),
    "wrong": ("Contested", {"still_wrong_at__isnull": False}),
}
EXPORTED: exporting.Columns = {
    "correction": "reference",
    "state": "state",
    "title": "title",
    "person": lambda one: one.person_name or one.person_id,
    "case": "case_id",
    "run": "case.run.run",
    "published_at": "published_at",
    "first_opened_at": "first_read_at",
    "times_opened": "read_count",
    "contested_at": "still_wrong_at",
}


@login_required
@require_GET
def correction_list(request: Request, workspace: str) -> HttpResponseBase:
    here = workspace_or_404(request, workspace)
    chosen = request.GET.get("view", "all")
    chosen = chosen if chosen in VIEWS else "all"
    rows = Correction.objects.filter(workspace=here, **VIEWS[chosen][1])
    if exporting.is_asked(request):
        listed = rows.select_related("case__run").order_by("-pk")
        clean = disclosure.cleaner(request.user, here)
        return exporting.sheet(request, "corrections", listed, EXPORTED, clean)
    shown_as = chips(request, "view", [(one, words) for one, (words, _) in VIEWS.items()], chosen)
    related = rows.select_related("case__run", "case__workspace")
    shown, pager = page_by_number(request, related.prefetch_related("deliveries", "contests"))
    context = {
        "workspace": here,
        "views": [
            chip | {"count": counted(Correction.objects.filter(workspace=here, **condition))}
            for chip, (_, condition) in zip(shown_as, VIEWS.values(), strict=True)
        ],
        "settings_url": reverse("recovery:correction_settings", args=[here.slug])
        if may(request.user, "administer", here)
        else "",
        "rows": [_row(here, one) for one in shown],
        "pager": pager,
        "empty": {
            "icon": "correction",
            "title": "No corrections here",
            "text": "When a case has been recovered, what each affected person is told is drafted"
            " here.",
        },
    }
    return page(request, "recovery/corrections.html", context)


def _row(here: Workspace, one: Correction) -> dict[str, Any]:
    return {
        "url": reverse("recovery:correction", args=[here.slug, one.pk]),
        "number": one.reference,
        "state": one.state,
        "title": one.title,
        "person": one.person_name or one.person_id,
        "run": one.case.run.run,
        "case_url": case_url(one.case),
        "published": formatting.moment(one.published_at),
        "since": correction_ways.since(one),
        "delivery": correction_ways.delivered(one),
    }


def found_or_404(here: Workspace, pk: int) -> Correction:
    rows = Correction.objects.select_related("case__run", "case__workspace", "workspace")
    return get_object_or_404(rows, pk=pk, workspace=here)


@login_required
@require_GET
def correction(request: Request, workspace: str, pk: int) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    return _one(request, found_or_404(here, pk))


NOT_CHANGED = "Nothing was changed."


def _one(
    request: Request,
    one: Correction,
    refusal: Exception | None = None,
    title: str = NOT_CHANGED,
) -> HttpResponse:
    """The page of a correction; after a refusal with its reason, and with what was typed."""
    context = card(request, one)
    if refusal is None:
        return page(request, "recovery/correction.html", context)
    said = request.POST
    typed = {name: said[name] for name in ("title", "lead") if name in said}
    fields = [fact for fact in context["facts_changed"] if fact["field"] in said]
    problem = {"tone": "bad", "title": title, "text": str(refusal)}
    is_input = not isinstance(refusal, OutOfDate | CannotMove)
    made: list[dict[str, Any]] = context["contests"]
    contested = next((each for each in made if each["url"] == request.path), {})
    waits = contested and not (contested["answered"] or contested["why_not"])
    if waits:
        contested |= {name: said.get(name, "") for name in ("upheld", "answer")}
    words = [said.get(name, "") for name in ("how", "reason", *([] if waits else ["answer"]))]
    if is_input:
        context["correction"] |= typed
        for fact in fields:
            fact["wording"] = said[fact["field"]]
    else:  # somebody else's words stand in the fields now, if there still are any
        words += [*typed.values(), *(said[fact["field"]] for fact in fields)]
    problem["typed"] = " · ".join(filter(None, words))
    (contested or context)["problem"] = problem
    status = 422 if is_input else 409
    return page(request, "recovery/correction.html", context, status=status)


@login_required
@require_GET
def preview(request: Request, workspace: str, pk: int) -> HttpResponse:
    """The page as the person sees it, draft or not; it counts as nobody's reading."""
    one = found_or_404(workspace_or_404(request, workspace), pk)
    if not _sees(request, one.workspace):
        require(request.user, "view_sensitive", one.workspace)
    return private(render(request, "recovery/trail.html", trail_context(one, {})))


@login_required
@require_POST
def save(request: Request, workspace: str, pk: int) -> HttpResponse:
    return _change(request, workspace, pk, partial(_edit, request), "The words are saved.")


@login_required
@require_POST
def publish(request: Request, workspace: str, pk: int) -> HttpResponse:
    """Save the words as they stand in the form, then publish exactly those."""
    one = found_or_404(workspace_to("recover", request, workspace), pk)
    ways, days = request.POST.getlist("delivery") or [publishing.LINK], _days(request)
    title = NOT_CHANGED
    try:
        edited = _edit(request, one)
        title = "The words are saved; it was not published."
        corrections.publish(
            edited, by=request.user, seen=edited.revision, ways=ways, valid_days=days
        )
    except REFUSALS as refusal:
        return _one(request, found_or_404(one.workspace, pk), refusal, title)
    by_hand = " Nobody is sent it: hand the link on." if ways == [publishing.LINK] else ""
    messages.success(request, f"Published.{by_hand}")
    return redirect("recovery:correction", workspace=workspace, pk=pk)


def _days(request: Request) -> int | None:
    days = request.POST.get("valid_days", "")
    return int(days) if is_number(days) else None


@login_required
@require_POST
def revoke(request: Request, workspace: str, pk: int) -> HttpResponse:
    def act(one: Correction) -> None:
        reason = request.POST.get("reason", "")
        corrections.revoke(one, by=request.user, seen=seen_revision(request), reason=reason)

    return _change(request, workspace, pk, act, "The link opens nothing any more.")


@login_required
@require_POST
def hand_on(request: Request, workspace: str, pk: int) -> HttpResponse:
    def act(one: Correction) -> None:
        how = request.POST.get("how", "")
        corrections.hand_on(one, by=request.user, seen=seen_revision(request), how=how)

    return _change(request, workspace, pk, act, "It is on the record that you told them.")


@login_required
@require_POST
def contest(request: Request, workspace: str, pk: int, contest: int) -> HttpResponse:
    """Answer what the person contests; whoever took part in it may not."""

    def act(one: Correction) -> None:
        found, said = get_object_or_404(one.contests, pk=contest), request.POST
        upheld = {"yes": True, "no": False}.get(said.get("upheld", ""))
        contesting.answer(found, by=request.user, upheld=upheld, text=said.get("answer", ""))

    return _change(request, workspace, pk, act, "Answered, in your name.")


@login_required
@require_POST
def draft_now(request: Request, workspace: str, pk: int) -> HttpResponse:
    """Draft what each affected person of a case is told, without waiting for its end."""
    case = case_to_recover(request, workspace, pk)
    before = dict(case.corrections.values_list("pk", "revision"))
    drafted = corrections.draft(case)
    changed = [one for one in drafted if before.get(one.pk) != one.revision]
    if changed:
        messages.success(request, f"{plural(len(changed), 'correction')} drafted, or drafted anew.")
    elif drafted:
        messages.info(request, "Nothing to draft: what is there says what the ledger holds.")
    else:
        messages.warning(request, "No affected person is known of this run.")
    return redirect(f"{case_url(case)}?tab=correction#more")


def _change(
    request: Request, workspace: str, pk: int, act: Callable[[Correction], object], words: str
) -> HttpResponse:
    """An act on a correction, and back to its page, which says that it is done or why not."""
    one = found_or_404(workspace_to("recover", request, workspace), pk)
    try:
        act(one)
    except REFUSALS as refusal:
        return _one(request, found_or_404(one.workspace, pk), refusal)
    messages.success(request, words)
    there, kept = reverse("recovery:correction", args=[workspace, pk]), urlencode(_chosen(request))
    return redirect(f"{there}?{kept}" if kept else there)


def _edit(request: Request, one: Correction) -> Correction:
    words = {
        name.removeprefix("word-"): str(text)
        for name, text in request.POST.items()
        if name.startswith("word-")
    }
    return corrections.edit(
        one,
        by=request.user,
        seen=seen_revision(request),
        title=request.POST.get("title", ""),
        lead=request.POST.get("lead", ""),
        words=words,
    )
