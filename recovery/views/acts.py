"""What can be done about a case, in the order of the page, and why not where not."""

from datetime import timedelta
from typing import Any

from recovery.cases.lifecycle import held_by_another
from recovery.models import Case, CaseState, Suggestion
from recovery.planning import previews
from recovery.planning.drafting import connections_of, draft_steps
from recovery.run_facts.runs import facts_of
from recovery.run_facts.sentences import listed
from recovery.views import teach
from recovery.views.request_context import case_url
from workspaces import clock, formatting
from workspaces.access import may, people_with
from workspaces.models import User

BUSY = {
    CaseState.WAITING: "its plan waits for approval",
    CaseState.RECOVERING: "its plan is running",
    CaseState.RESUMING: "the run was told to resume",
}
NO_RIGHT = (
    "You look on: acting on a case takes the permission “recover”, which administrators give."
)


def offered(case: Case, person: User) -> list[dict[str, Any]]:
    """Resume, compensate, settle and close; the suggested one leads. Where the desk has only to be
    taught how, that stands in the place of compensating, for who may.
    """
    url, blocked = case_url(case), _blocked(case, person)
    if case.state == CaseState.CLOSED:
        return []
    doubt = "settle the unknown outcome first" if case.unknown_count else ""
    gone = "what was said in the run is erased" if case.run.forgotten_at else ""
    standing, teach_url = ("", "") if doubt else _why_nothing_is_undone(case, person)
    undoing = "Compensate…", f"{url}compensate/", blocked or doubt or standing
    if teach_url:
        undoing = "Teach the desk to undo this…", teach_url, ""
    label, place, why = undoing
    entries = [
        ("Resume…", f"{url}resume/", "r", Suggestion.RESUME, blocked or gone or doubt),
        (label, place, "u", Suggestion.COMPENSATE, why),
        ("Close…", f"{url}close/", "e", Suggestion.CLOSE, blocked or doubt),
    ]
    waiting = "" if blocked == BUSY[CaseState.RECOVERING] else blocked
    if case.unknown_count or case.suggestion == Suggestion.SETTLE:
        entries.insert(0, ("Settle…", f"{url}settle/", "s", Suggestion.SETTLE, waiting))
    return [
        {
            "label": label,
            "url": place,
            "key": key,
            "main": case.suggestion == suggestion,
            "why_not": why_not,
        }
        for label, place, key, suggestion, why_not in entries
    ]


def _why_nothing_is_undone(case: Case, person: User) -> tuple[str, str]:
    """Looked at anew where the row says so: a twin or a connection may have come since. Beside it
    where the person can teach the desk how, if that is what is missing.
    """
    if not case.standing_count:
        return "no effect is known to stand", ""
    says_so = case.suggestion == Suggestion.CLOSE or case.suggestion_text == previews.NOTHING
    if not (says_so or case.suggestion_text.startswith(previews.TEACH)):
        return "", ""
    facts = facts_of(case.run)
    drafted = draft_steps(facts, connections_of([case.workspace_id]))
    if drafted.steps:
        return "", ""
    if previews.untaught(drafted):
        taught = teach.urls(facts, [one.effect for one in drafted.cannot], person)
        return teach.teachers(case.workspace), next(filter(None, taught), "")
    words = previews.nothing(drafted)
    return words[0].lower() + words[1:], ""


def why_not(acts: list[dict[str, Any]]) -> str:
    """Why some of them are not offered, each reason once."""
    reasons = list(dict.fromkeys(act["why_not"] for act in acts if act["why_not"]))
    if not reasons:
        return ""
    if NO_RIGHT in reasons:
        return NO_RIGHT
    if len(reasons) == 1 and all(act["why_not"] for act in acts):
        return f"Not now: {reasons[0]}."
    named = []
    for reason in reasons:
        labels = [act["label"].rstrip("…") for act in acts if act["why_not"] == reason]
        named.append(f"{listed(labels)}: {reason}")
    return ". ".join(named) + "."


def _blocked(case: Case, person: User) -> str:
    if not may(person, "recover", case.workspace):
        return NO_RIGHT
    other = held_by_another(case, person)
    if other is not None:
        return f"{other} has claimed it"
    return BUSY.get(CaseState(case.state), "")


PEOPLE_MAX = 200
HOURS = ((1, "for an hour"), (4, "for four hours"), (24, "for a day"), (72, "for three days"))


def colleagues(case: Case) -> list[User]:
    """Who may take a case over: everybody who recovers here."""
    return list(people_with("recover", case.workspace).order_by("name")[:PEOPLE_MAX])


def handing(case: Case, person: User) -> dict[str, Any] | None:
    """What whoever recovers may do with an open case besides working on it; None for others."""
    if case.state == CaseState.CLOSED or not may(person, "recover", case.workspace):
        return None
    now = clock.now()
    latest = case.due_at
    sleeps = case.snoozed_until is not None and case.snoozed_until > now
    return {
        "hand_url": f"{case_url(case)}hand-over/",
        "snooze_url": f"{case_url(case)}snooze/",
        "people": [
            {
                "value": one.pk,
                "label": f"{one} (you)" if one == person else formatting.with_address(one),
            }
            for one in colleagues(case)
        ],
        "hours": [
            {"value": hours, "label": label}
            for hours, label in HOURS
            if latest is None or now + timedelta(hours=hours) <= latest
        ],
        "until": formatting.moment(case.snoozed_until, "full") if sleeps else "",
    }
