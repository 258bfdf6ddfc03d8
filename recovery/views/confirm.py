"""Confirming: a person's word on a call whose rule asks for a verification that has not come."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.views.decorators.http import require_http_methods

from ledger import disclosure
from ledger.models import Action, Effect
from recovery.cases.lifecycle import REFUSALS
from recovery.casework import settling
from recovery.models import Case
from recovery.run_facts.records import Records
from recovery.run_facts.runs import RunFacts, facts_of
from recovery.views import request_context, story
from recovery.views.request_context import case_to_recover, case_url
from recovery.views.settle import ANSWERED, WRITTEN, TooLate, offered, raw_call, subject_of
from workspaces import formatting
from workspaces.free_text import InvalidInput
from workspaces.pages import Request, named

CONFIRM_SHOWN_MAX = 3
AS_IT_SHOULD = ("ok", "It is as it should be", "The call counts as verified, by you.")
WRONG = ("wrong", "It is not", "The case says so, and what it did can be undone.")


@login_required
@require_http_methods(["GET", "POST"])
def confirm(request: Request, workspace: str, pk: int) -> HttpResponse:
    """The call that the address names, else the first that waits."""
    case = case_to_recover(request, workspace, pk)
    params = request.POST or request.GET
    facts = facts_of(case.run)
    waiting = settling.awaited(facts)
    named_ = params.get("action", "")
    action = next((one for one in waiting if named_ in ("", str(one.pk), one.action)), None)
    if action is None:
        return _confirmed_before(request, case, facts)
    if request.method == "GET":
        return _show_confirm(request, case, facts, action)
    try:
        settling.confirm(
            case,
            action,
            ok=_is_as_it_should(request),
            evidence=params.get("evidence", ""),
            by=request.user,
            seen=request_context.seen_revision(request),
        )
    except REFUSALS as refusal:
        if action not in settling.awaited(facts_of(case.run)):  # somebody was faster just now
            return _confirmed_before(request, case, facts)
        return _show_confirm(request, case, facts, action, problem=refusal)
    return request_context.preview_done(request, case, WRITTEN)


def _confirmed_before(request: Request, case: Case, facts: RunFacts) -> HttpResponse:
    late = subject_of(request, case)
    if not isinstance(late, Action):
        words = "It has been verified meanwhile."
        return request_context.preview_done(request, case, words, messages.INFO)
    ok, words = request.POST.get("outcome") == AS_IT_SHOULD[0], request.POST.get("evidence", "")
    if settling.is_confirmed(case, late, ok=ok, words=words, by=request.user):
        return request_context.preview_done(request, case, WRITTEN)
    overtaken = TooLate(settling.verified_meanwhile(case, late))
    return _show_confirm(request, case, facts, late, problem=overtaken)


def _is_as_it_should(request: Request) -> bool:
    way = request.POST.get("outcome", "")
    if way not in {AS_IT_SHOULD[0], WRONG[0]}:
        raise InvalidInput("Say whether it is as it should be.")
    return way == AS_IT_SHOULD[0]


def _show_confirm(
    request: Request,
    case: Case,
    facts: RunFacts,
    action: Action,
    *,
    problem: Exception | None = None,
) -> HttpResponse:
    if problem is not None:
        case.refresh_from_db()
    sensitive = disclosure.sees(request.user, case.workspace)
    effects = list(facts.effects.get(action.pk, ()))
    is_late = isinstance(problem, TooLate)
    context: dict[str, Any] = {
        "kind": "action",
        "subject_id": action.pk,
        "title": f"Is it as {action.tool_words} should have left it?",
        "lead": "It waits for no word any more. What you wrote is kept below."
        if is_late
        else "Look outside, at the thing itself. Nothing is sent from here.",
        "sent": _call_facts(facts, action, effects),
        "raw": raw_call(action.args) if sensitive else "",
        "stopped_by": story.differences(effects, sensitive=sensitive, slug=case.workspace.slug),
        "links": Records(facts.run.workspace, facts.policy).of_action(action),
        "stopped_words": "What it changed, as it was told",
        "stopped_was": "was",
        "probes": [],
        "no_probe": "What became of it stands above."
        if is_late
        else "No verification has come. You are the one who looks.",
        "legend": "What do you see?",
        "ways": offered((AS_IT_SHOULD, WRONG), request.POST.get("outcome", "")),
        "evidence": request.POST.get("evidence", ""),
        "commit_label": "Say so, in my name",
        "why_not": ANSWERED if is_late else "",
    }
    return request_context.show_preview(request, "Confirm", case, context, problem=problem)


def _call_facts(facts: RunFacts, action: Action, effects: list[Effect]) -> list[dict[str, Any]]:
    """What was done, to what and when, as facts of the page."""
    targets = ", ".join(f"{one.target_type} {one.target_id}" for one in effects)
    started = action.started_at
    return [
        *named({"Tool": action.tool, "Target": targets}),
        *([{"name": "Done", "time": formatting.moment(started, "clock")}] if started else []),
        *named({"Its rule asks for": facts.judgement(action).verify.lower()}),
    ]


def notices(case: Case, facts: RunFacts) -> list[dict[str, Any]]:
    """What the case's page says of calls that wait for a person's look."""
    return [
        {
            "tone": "wait",
            "title": f"{action.tool_words} waits to be verified.",
            "text": "Its rule asks for that, and nobody has said how it is.",
            "links": [
                {
                    "url": f"{case_url(case)}confirm/?action={action.pk}",
                    "label": "Say what you see",
                }
            ],
        }
        for action in settling.awaited(facts)[:CONFIRM_SHOWN_MAX]
    ]
