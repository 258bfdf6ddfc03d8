"""One line of the queue, all of it formatted; and the case beside the list, which is one more."""

from typing import Any
from urllib.parse import urlencode

from django.utils import timezone

from ledger.models import Effect
from recovery.cases.rows import holder_of
from recovery.models import Case, CaseState, Suggestion
from recovery.views import acts, effects
from recovery.views.here import case_url, due_words, queue_url, trace_url
from workspaces import look
from workspaces.models import User, Workspace
from workspaces.pages import Request, is_number

EFFECTS_SHOWN_MAX = 12
COLUMNS = (
    "brief", "headline", "risk", "request", "customer", "customer_name", "state", "failed_tool",
    "failed_target", "outcome", "suggestion", "suggestion_text", "reversibility", "closed_at",
    "needs_approval", "due_at", "failed_at", "claimed_until", "amount_minor", "currency",
    "unknown_count", "agent__name", "claimed_by__name", "claimed_by__email", "run__run",
    "run__trace",
)  # fmt: skip
"""What `row` reads of a case; all else stays where it is."""


def row(case: Case, person: User, kept: str = "", *, recovers: bool = False) -> dict[str, Any]:
    """One line of the queue, all of it formatted; `kept` is the list that its case comes from.

    Whoever recovers gets the suggestion as a link to its preview: one click from the list.
    """
    holder = holder_of(case)
    sign, approval = _suggested(case)
    return {
        "id": case.pk,
        "url": f"{case_url(case)}?{kept}" if kept else case_url(case),
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
        "suggestion": case.get_outcome_display()
        or case.suggestion_text
        or case.get_suggestion_display(),
        "suggestion_url": f"{case_url(case)}{case.suggestion}/"
        if recovers and case.state == CaseState.OPEN and holder in (None, person)
        else "",
        "reversibility": sign,
        "approval": approval,
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


def _suggested(case: Case) -> tuple[str, str]:
    """The sign of the suggested act and whose approval it takes.

    Those that are kept are the compensation's: settling says what happened and sends nothing, and
    a resumed run asks at the gate, call by call.
    """
    if case.closed_at:
        return case.reversibility, "—"
    if case.state in {CaseState.OPEN, CaseState.RESUMING}:
        if case.suggestion == Suggestion.SETTLE:
            return "unknown", "None yet"
        if case.suggestion == Suggestion.RESUME:
            return "", "None"
    return case.reversibility, case.needs_approval or "None"


def _short(case: Case) -> str:
    """The trouble alone; else the headline without the agent, whom every line would begin with."""
    if case.brief:
        return case.brief
    agent = f"Agent {look.quoted(case.agent.name)} " if case.agent else ""
    words = case.headline.removeprefix(agent)
    return f"{words[:1].upper()}{words[1:]}"


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
    shown, offered = row(found, request.user), acts.offered(found, request.user)
    return shown | {
        "headline": found.headline,
        "close_url": "?" + urlencode(kept) if kept else queue_url(here),
        "facts": _facts(found, shown),
        "effects": [effects.line(one.action, one) for one in done[:EFFECTS_SHOWN_MAX]],
        "reason": found.suggestion_reason,
        "acts": offered,
        "acts_why": acts.why_not(offered),
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
