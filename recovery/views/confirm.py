"""A person's word on a call whose verification never came, or that its rule leaves to people."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.views.decorators.http import require_http_methods

from ledger import disclosure
from ledger.models import Action, Effect
from recovery.cases.lifecycle import InvalidInput, OutOfDate
from recovery.casework import confirming
from recovery.models import Case
from recovery.run_facts.runs import RunFacts, facts_of
from recovery.views import preview, story
from recovery.views.request_context import case_or_404, case_url, named
from workspaces import formatting
from workspaces.access import require
from workspaces.moves import CannotMove
from workspaces.pages import Request

AS_IT_SHOULD = ("ok", "It is as it should be", "The call counts as verified, by you.")
WRONG = ("wrong", "It is not", "The case says so, and what it did can be undone.")


@login_required
@require_http_methods(["GET", "POST"])
def confirm(request: Request, workspace: str, pk: int) -> HttpResponse:
    """The call that the address names, else the first that waits."""
    case = case_or_404(request, workspace, pk)
    require(request.user, "recover", case.workspace)
    said = request.POST or request.GET
    facts = facts_of(case.run)
    waiting = confirming.awaited(facts)
    named_ = said.get("action", "")
    action = next((one for one in waiting if named_ in ("", str(one.pk), one.action)), None)
    if action is None:
        words = "It has been verified meanwhile."
        return preview.done(request, case, words, messages.INFO)
    if request.method == "GET":
        return _show(request, case, facts, action)
    try:
        confirming.confirm(
            case,
            action,
            ok=_way(request) == "ok",
            evidence=said.get("evidence", ""),
            by=request.user,
            seen=preview.revision(request),
        )
    except (OutOfDate, CannotMove, InvalidInput) as refusal:
        return _show(request, case, facts, action, problem=refusal)
    return preview.done(request, case, "Written down, in your name.")


def _way(request: Request) -> str:
    way = request.POST.get("outcome", "")
    if way not in {"ok", "wrong"}:
        raise InvalidInput("Say whether it is as it should be.")
    return way


def _show(
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
    chosen = request.POST.get("outcome", "")
    effects = list(facts.effects.get(action.pk, ()))
    told: dict[str, Any] = {
        "kind": "action",
        "subject_id": action.pk,
        "title": f"Is it as {action.tool_words} should have left it?",
        "lead": "Look outside, at the thing itself. Nothing is sent from here.",
        "sent": _done(facts, action, effects),
        "stopped_by": story.differences(effects, sensitive=sensitive, slug=case.workspace.slug),
        "stopped_words": "What it changed, as it was told",
        "stopped_was": "was",
        "probes": [],
        "no_probe": "No verification has come. You are the one who looks.",
        "legend": "What do you see?",
        "ways": [
            {"value": value, "label": label, "note": note, "selected": value == chosen}
            for value, label, note in (AS_IT_SHOULD, WRONG)
        ],
        "evidence": request.POST.get("evidence", ""),
        "commit_label": "Say so, in my name",
        "why_not": "",
    }
    return preview.show(request, "Confirm", case, told, problem=problem)


def _done(facts: RunFacts, action: Action, effects: list[Effect]) -> list[dict[str, Any]]:
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
        for action in confirming.awaited(facts)
    ][:3]
