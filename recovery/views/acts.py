"""What can be done about a case, in the order of the page, and why not where not."""

from typing import Any

from recovery.cases.lifecycle import held_by_another
from recovery.models import Case, CaseState, Suggestion
from recovery.planning import previews
from recovery.planning.drafting import CannotUndo, connections_of, draft_steps
from recovery.run_facts.runs import facts_of
from recovery.run_facts.sentences import listed
from recovery.views.request_context import case_url
from workspaces.access import may
from workspaces.models import User

BUSY = {
    CaseState.WAITING: "its plan waits for approval",
    CaseState.RECOVERING: "its plan is running",
    CaseState.RESUMING: "the run was told to resume",
}


def offered(case: Case, person: User) -> list[dict[str, Any]]:
    """Resume, compensate, settle and close; the suggested one leads."""
    url, blocked = case_url(case), _blocked(case, person)
    if case.state == CaseState.CLOSED:
        return []
    doubt = "settle the unknown outcome first" if case.unknown_count else ""
    standing = _why_nothing_is_undone(case)
    entries = [
        ("Resume…", "resume", "r", Suggestion.RESUME, blocked or doubt),
        ("Compensate…", "compensate", "u", Suggestion.COMPENSATE, blocked or doubt or standing),
        ("Close…", "close", "e", Suggestion.CLOSE, blocked or doubt),
    ]
    waiting = "" if case.state == CaseState.RECOVERING else blocked
    if case.unknown_count or case.suggestion == Suggestion.SETTLE:
        entries.insert(0, ("Settle…", "settle", "s", Suggestion.SETTLE, waiting))
    return [
        {
            "label": label,
            "url": f"{url}{place}/",
            "key": key,
            "main": case.suggestion == suggestion,
            "why_not": why_not,
        }
        for label, place, key, suggestion, why_not in entries
    ]


def _why_nothing_is_undone(case: Case) -> str:
    """Looked at anew where the row says so: a twin or a connection may have come since."""
    if not case.standing_count:
        return "no effect stands"
    if case.suggestion != Suggestion.CLOSE and case.suggestion_text != previews.NOTHING:
        return ""
    try:
        drafted = draft_steps(facts_of(case.run), connections_of([case.workspace_id]))
    except CannotUndo:  # longer than one plan; the preview says how to go about it
        return ""
    return "" if drafted.steps else "nothing that stands can be undone from here"


def why_not(acts: list[dict[str, Any]]) -> str:
    """Why some of them are not offered, each reason once."""
    reasons = list(dict.fromkeys(act["why_not"] for act in acts if act["why_not"]))
    if not reasons:
        return ""
    if len(reasons) == 1 and all(act["why_not"] for act in acts):
        return f"Not now: {reasons[0]}."
    named = []
    for reason in reasons:
        labels = [act["label"].rstrip("…") for act in acts if act["why_not"] == reason]
        named.append(f"{listed(labels)}: {reason}")
    return ". ".join(named) + "."


def _blocked(case: Case, person: User) -> str:
    if not may(person, "recover", case.workspace):
        return "this needs the permission “recover”"
    other = held_by_another(case, person)
    if other is not None:
        return f"{other} has claimed it"
    return BUSY.get(CaseState(case.state), "")
