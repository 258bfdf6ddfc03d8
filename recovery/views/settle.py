"""Deciding what nobody but a person can know: an outcome, or what becomes of a step that waits.

Nothing is sent from here. What the person saw goes to the record under their name.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from approvals import policy
from connectors import calllog
from connectors.contract import CannotRead, Refused
from ledger import disclosure
from ledger.models import Action
from recovery.cases.lifecycle import REFUSALS, held_by_another
from recovery.casework import settling
from recovery.engine import outbound_calls, steps
from recovery.models import Case, PlanState, Step, StepAttempt, StepState
from recovery.run_facts.records import Records
from recovery.run_facts.runs import RunFacts
from recovery.run_facts.sentences import seen_words, without_addresses
from recovery.triage import headlines, outcome_probes
from recovery.views import plan_card, request_context
from recovery.views.request_context import case_to_recover, case_url
from workspaces import formatting
from workspaces.pages import Request, is_number, named

# A second answer to what somebody has settled already: who said what, and how it stands now.


class TooLate(Exception):
    """We stopped because it was answered before. Show how it stands, and keep what was typed."""


def subject_of(request: HttpRequest, case: Case) -> Action | Step | None:
    """What the form was about, though nobody asks for a word on it any more."""
    posted = request.POST
    if is_number(posted.get("step", "")):
        found = Step.objects.filter(plan__case=case, pk=posted["step"])
        return found.select_related(*steps.RELATED).first()
    if is_number(posted.get("action", "")):
        return Action.objects.filter(run=case.run_id, pk=posted["action"]).first()
    return None


Way = tuple[str, str, str]
"""What may be said: its value, its label, and what follows of it."""

ATTEMPTS_SHOWN_MAX = 20
FIELDS_SHOWN_MAX = 30
HAPPENED = ("applied", "It happened", "Its effect stands, to be undone if a way back is known.")
LASTS = ("applied", "It happened", "It cannot be undone: what is left of it gets an owner.")
NEVER = ("no_effect", "It did not happen", "Nothing of it stands. A resume may repeat it.")
READ_BACK = ("applied", "It is done", "It is read back, and counts only if that shows it.")
UNREADABLE = ("applied", "It is done", "It cannot be read back: your word is what counts.")
ONCE_OVER = "once the first call can no longer be on its way."
SENT_ANEW = ("no_effect", "It did not happen", f"It is sent again, under the same key, {ONCE_OVER}")
ANEW_BY_NAME = (*SENT_ANEW[:2], f"It is sent again in your name, under a new key, {ONCE_OVER}")
AGAIN = ("again", "It did not happen: try once more", "Sent again in your name, under a new key.")
TRIED = (AGAIN[0], "Try once more", "Sent in your name, under a new key.")
NOT_AGAIN = ("no_effect", "It did not happen", "Its plan was stopped, so it is not sent again.")
LEAVE = ("skip", "Leave the effect as it is", "The step is skipped, and the effect stands.")
SENDS_NOTHING = {READ_BACK, UNREADABLE, NOT_AGAIN, LEAVE}
WRITTEN = "Written down, in your name."
LOOK = "Look in the system itself, by what was sent."
ASKED_ANEW = "It is asked again each time this page is loaded."
UNSEEN = "it is shown to who may see values (view_sensitive)"
FIELDLESS = "it is there, with none of the fields that the step is about"
ANSWERED = "it was answered already; what you wrote can go into a comment"


@dataclass(frozen=True, slots=True)
class OpenOutcomes:
    """What waits for a word in a case, as it was read at one moment: once for a page."""

    facts: RunFacts
    actions: Sequence[Action]
    steps: Sequence[Step]

    @classmethod
    def of(cls, case: Case) -> OpenOutcomes:
        facts = settling.facts_now(case)
        return cls(facts, facts.unknown(), settling.steps_in_doubt(case))


@login_required
@require_http_methods(["GET", "POST"])
def settle(request: Request, workspace: str, pk: int) -> HttpResponse:
    """The doubt that the address names, else the first one of the case."""
    case = case_to_recover(request, workspace, pk)
    outcomes = OpenOutcomes.of(case)
    subject = _subject(request, outcomes)
    late = subject_of(request, case) if subject is None else None
    if late is not None:
        if _is_said(request, case, late):
            return request_context.preview_done(request, case, WRITTEN)
        overtaken = TooLate(settling.settled_meanwhile(case, late))
        return _show(request, case, late, outcomes, problem=overtaken)
    if subject is None:
        words = "Nothing is in doubt here any more."
        return request_context.preview_done(request, case, words, messages.INFO)
    if request.method == "GET":
        return _show(request, case, subject, outcomes)
    try:
        _decide(request, case, subject)
    except REFUSALS as refusal:
        if not _is_said(request, case, subject):
            return _show(request, case, subject, OpenOutcomes.of(case), problem=refusal)
    return request_context.preview_done(request, case, WRITTEN)


def _subject(request: Request, outcomes: OpenOutcomes) -> Action | Step | None:
    params = request.POST or request.GET
    actions, steps = outcomes.actions, outcomes.steps
    if "step" in params:
        return next((one for one in steps if str(one.pk) == params["step"]), None)
    if "action" in params:
        return next((one for one in actions if params["action"] in (str(one.pk), one.action)), None)
    return actions[0] if actions else steps[0] if steps else None


def _decide(request: Request, case: Case, subject: Action | Step) -> None:
    posted = request.POST
    way, words = posted.get("outcome", ""), posted.get("evidence", "")
    by, seen = request.user, request_context.seen_revision(request)
    if isinstance(subject, Step):
        settling.decide_step(subject, way=way, words=words, by=by, seen=seen)
        return
    knows = bool(posted.get("against_probe"))
    settling.settle_call(
        case, subject, outcome=way, evidence=words, by=by, seen=seen, against_probe=knows
    )


def _is_said(request: Request, case: Case, subject: Action | Step) -> bool:
    posted = request.POST
    way, words = posted.get("outcome", ""), posted.get("evidence", "")
    by, seen = request.user, request_context.seen_revision(request)
    return settling.is_said(case, subject, way=way, words=words, by=by, seen=seen)


def _show(
    request: Request,
    case: Case,
    subject: Action | Step,
    outcomes: OpenOutcomes,
    *,
    problem: Exception | None = None,
) -> HttpResponse:
    if problem is not None:
        case.refresh_from_db()
    sensitive = disclosure.sees(request.user, case.workspace)
    about = (
        _of_action(outcomes.facts, subject, sensitive=sensitive)
        if isinstance(subject, Action)
        else _of_step(subject, sensitive=sensitive)
    )
    if isinstance(problem, TooLate):
        about["lead"] = "Somebody answered while you wrote. Your words are kept below."
    other = held_by_another(case, request.user)
    claimed = f"{other} has claimed this case." if other else ""
    context: dict[str, Any] = {
        "subject_id": subject.pk,
        "others": _others(case, subject, outcomes),
        "evidence": request.POST.get("evidence", ""),
        "why_not": ANSWERED if isinstance(problem, TooLate) else claimed,
        **about,
    }
    if isinstance(problem, settling.ProbeDisagrees):
        link = {"label": "If the system is wrong, say so here", "url": "#against-probe"}
        context["against_probe"] = True
        context["problem"] = request_context.stale(problem) | {"links": [link]}
    chosen = request.POST.get("outcome") or about.get("found", "")
    context["ways"] = offered(about["ways"], chosen)
    return request_context.show_preview(request, "Settle", case, context, problem=problem)


def offered(ways: Sequence[Way], chosen: str) -> list[dict[str, Any]]:
    return [
        {"value": value, "label": label, "note": note, "selected": value == chosen}
        for value, label, note in ways
    ]


def _others(case: Case, subject: Action | Step, outcomes: OpenOutcomes) -> list[dict[str, str]]:
    """What else of this case waits for a word."""
    found = [
        *((f"?action={one.pk}", one.tool, one) for one in outcomes.actions),
        *((f"?step={one.pk}", plan_card.title_of(one), one) for one in outcomes.steps),
    ]
    return [
        {"url": f"{case_url(case)}settle/{query}", "label": label}
        for query, label, one in found
        if one != subject
    ]


def _of_action(facts: RunFacts, action: Action, *, sensitive: bool) -> dict[str, Any]:
    """An agent's call without an answer: what was sent, and what a probe sees now."""
    targets = action.targets_words
    sent_at = action.started_at or action.planned_at
    error = action.error if isinstance(action.error, dict) else {}
    message = without_addresses(str(error.get("message") or error.get("type") or ""))
    money = headlines.money_of(facts, action)
    sent = {
        "Tool": action.tool,
        "Target": targets,
        "Amount": str(money) if money else "",
        "Answer": formatting.quoted(message) if message else "none came",
    }
    probes, found = _asked(facts, action, sensitive=sensitive)
    return {
        "kind": "action",
        "title": f"Did {action.tool_words} happen?",
        "lead": "The agent sent it and never learned how it ended. Until somebody knows,"
        " this run is neither resumed nor undone.",
        "sent": [
            *named(sent),
            *([{"name": "Sent", "time": formatting.moment(sent_at, "full")}] if sent_at else []),
            *([{"name": "Key", "value": action.key, "mono": True}] if action.key else []),
        ],
        "raw": raw_call(action.args) if sensitive else "",
        "asks": outcome_probes.question(facts, action),
        "links": Records(facts.run.workspace, facts.policy).of_action(action),
        "probes": probes,
        "no_probe": f"{outcome_probes.why_not(facts, action)}, so the desk cannot ask. {LOOK}",
        "look": f"{LOOK} {ASKED_ANEW}" if probes and not found else "",
        "ways": [LASTS if facts.is_irreversible(action) else HAPPENED, NEVER],
        "found": found,
        "evidence_label": "How do you know?",
        "commit_label": "Settle with this evidence",
    }


def _asked(facts: RunFacts, action: Action, *, sensitive: bool) -> tuple[list[dict[str, Any]], str]:
    if not outcome_probes.can_ask(facts, action):
        return [], ""
    asked = outcome_probes.ask(facts, action)
    paths = facts.run.workspace.mask
    found = disclosure.value(asked.finding.evidence, sensitive=sensitive, paths=paths)
    saw = seen_words(found)
    told = {"words": asked.words, "saw": saw, "time": "just now", "outcome": asked.outcome}
    return [told], asked.outcome


def _of_step(step: Step, *, sensitive: bool) -> dict[str, Any]:
    """A step of a plan that the engine leaves to people."""
    lost, title = step.is_lost, plan_card.title_of(step)
    stopped_by = plan_card.differences(step, sensitive=sensitive)
    sent = {
        "Step": f"{step.position} of plan {step.plan.number}",
        "Call": f"{step.connection.name} · {step.operation}",
        "Target": f"{formatting.named(step.target_type)} {formatting.named(step.target_id)}",
        "Amount": _amount(step) if sensitive else "",
        "It waits because": plan_card.waits_because(step),
    }
    return {
        "kind": "step",
        "title": f"Was it done? {title}" if lost else f"What becomes of it? {title}",
        "lead": "It was sent, and its outcome is unknown."
        if lost
        else plan_card.left_to_people(step),
        "sent": [*named(sent), {"name": "Key", "value": step.key, "mono": True}],
        "links": Records(step.workspace, policy.active(step.workspace)).of_step(step),
        "raw": raw_call(step.args) if sensitive else "",
        "probes": (tried := _attempts(step)),
        "sent_title": "What was sent" if tried else "What would be sent",
        "no_probe": "Nothing was sent yet.",
        "ways": (ways := _ways(step, lost=lost)),
        "sends": any(one not in SENDS_NOTHING for one in ways),
        "stopped_by": stopped_by,
        **_read_now(step, sensitive=sensitive),
        **_replanned(step, stopped=bool(stopped_by) and not lost),
        "evidence_label": "How do you know?" if lost else "Why?",
        "commit_label": "Settle with this evidence" if lost else "Decide this step",
    }


def _amount(step: Step) -> str:
    """What it moves, as its preview has it."""
    moved = (step.preview or {}).get("money")
    if not isinstance(moved, dict) or moved.get("amount_minor") is None:
        return ""
    return formatting.money(moved["amount_minor"], moved.get("currency", ""))


def _replanned(step: Step, *, stopped: bool) -> dict[str, str]:
    """Where a new plan would lead further than an answer."""
    if step.state == StepState.DRIFTED:
        words = "To keep or overrule the later change, make a new plan."
    elif stopped:
        words = "To have it done as things stand now, make a new plan, and have that approved."
    else:
        return {}
    return {"replan_url": f"{case_url(step.plan.case)}compensate/", "replan_words": words}


def _ways(step: Step, *, lost: bool) -> list[Way]:
    if step.state == StepState.DRIFTED:
        return [LEAVE]
    done = READ_BACK if settling.reads_back(step) else UNREADABLE
    if step.plan.state != PlanState.RUNNING:
        never = NOT_AGAIN if step.state == StepState.UNKNOWN else LEAVE
        return [done, never]
    if step.state == StepState.UNKNOWN:
        return [done, SENT_ANEW if settling.may_repeat(step) else ANEW_BY_NAME]
    return [done, AGAIN if lost else TRIED, LEAVE]


def _attempts(step: Step) -> list[dict[str, Any]]:
    """The newest first; those with one answer are one line, with the time of the last."""
    tries = step.attempts.order_by("-number")[:ATTEMPTS_SHOWN_MAX]
    grouped = groupby(tries, lambda one: (one.outcome, one.detail))
    return [
        {
            "words": f"{_tries(found)}: {plan_card.TRIED.get(outcome, outcome)}. {detail}".strip(),
            "saw": "",
            "time": formatting.moment(found[0].intended_at, "clock"),
        }
        for (outcome, detail), alike in grouped
        for found in [list(alike)]
    ]


def _tries(found: Sequence[StepAttempt]) -> str:
    last, first = found[0].number, found[-1].number
    return f"Try {last}" if first == last else f"Tries {first} to {last}"


def _read_now(step: Step, *, sensitive: bool) -> dict[str, Any]:
    """What the target looks like, or why nobody can tell just now and what to do: a system that
    failed often is left alone, however often the page is loaded.
    """
    if not sensitive:
        return {"target_unread": UNSEEN, "look": LOOK}
    wait, why, rows, look = calllog.may_call(step.connection), "", [], f"{LOOK} {ASKED_ANEW}"
    try:
        rows = [] if wait else _target_now(step)
    except CannotRead as unread:
        why = str(unread)
    except Refused as refused:  # nobody was asked
        why, look = str(refused), LOOK
    if why := wait.reason if wait else why:
        name = step.connection.name
        return {
            "target_unread": f"it could not be read. {why}",
            "look": look,
            "connection": {"name": name, "url": f"/w/{step.workspace.slug}/connectors/{name}/"},
        }
    if not rows:
        return {"target_unread": FIELDLESS, "look": LOOK}
    paths, among = step.workspace.mask, ("was", "now")
    return {"target_now": disclosure.fields(rows, sensitive=True, paths=paths, among=among)}


def _target_now(step: Step) -> list[dict[str, Any]]:
    """Before the call and now, of the fields that the step is about; raises CannotRead, Refused."""
    seen = outbound_calls.observe(step)
    wanted = (step.post_condition or {}).get("fields") or {}
    before = step.expected if isinstance(step.expected, dict) else {}
    now = seen.state or {}
    if not seen.found or not before:
        there = "there" if seen.found else "not there"
        return [{"field": "the whole", "was": "there", "now": there, "kind": "changed"}]
    names = [name for name in {**wanted, **before} if name in wanted or name in now]
    return [
        {
            "field": name,
            "was": before.get(name),
            "now": now.get(name),
            "kind": "same" if before.get(name) == now.get(name) else "changed",
            "note": "as the step wants it"
            if name in wanted and now.get(name) == wanted[name]
            else "",
        }
        for name in names[:FIELDS_SHOWN_MAX]
    ]


def raw_call(args: object) -> str:
    return json.dumps(args, indent=2, ensure_ascii=False, default=str) if args else ""
