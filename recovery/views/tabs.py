"""What stands below a case: its evidence, its relatives, what was done about it, its correction."""

from typing import Any

from django.db.models import Q

from ledger.models import Event
from recovery.facts.runs import RunFacts
from recovery.facts.words import plural
from recovery.models import Case, Correction
from recovery.triage.causes import title
from recovery.views.here import case_url
from workspaces import look
from workspaces.access import may
from workspaces.models import User
from workspaces.pages import Request, is_number

TABS = ("evidence", "related", "activity", "correction")
RELATED_MAX = 20
ACTIVITY_MAX = 100


def listed(case: Case, tab: str, kept: str = "") -> list[dict[str, Any]]:
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
    if tab == "activity":
        recovers = may(request.user, "recover", case.workspace)
        return {
            "activity": _activity(case),
            "comment_url": f"{case_url(case)}comment/" if recovers else "",
        }
    if tab == "related":
        return {"related": _related(case)}
    if tab == "correction":
        return {"correction": correction_of(case)}
    return {"evidence": _evidence(case, facts)}


def _evidence(case: Case, facts: RunFacts) -> list[dict[str, Any]]:
    run = facts.run
    facts_told = [
        ("Opened because", ", ".join(case.reasons).replace("_", " ")),
        ("Agent", f"{run.agent.name} · {run.model}" if run.agent else "the desk"),
        ("Goal", run.goal),
        ("Run state", run.state),
        ("Events", f"{run.first_place} to {run.last_place} of the ledger"),
        ("Cause", title(case.cause) if case.cause else ""),
        ("Flags", ", ".join(run.flags).replace("_", " ")),
        ("Actions", plural(len(facts.actions), "action")),
    ]
    return [{"name": name, "value": value} for name, value in facts_told if value]


def _related(case: Case) -> list[dict[str, Any]]:
    alike = Q(cause=case.cause_id) if case.cause_id else Q(pk=None)
    if case.customer:
        alike |= Q(customer=case.customer)
    found = (
        Case.objects.select_related("run", "workspace")
        .filter(alike, workspace=case.workspace)
        .exclude(pk=case.pk)
        .order_by("-failed_at", "-id")
    )
    return [
        {
            "url": case_url(one),
            "headline": one.headline,
            "state": one.state,
            "words": f"{one.run.run} · same "
            + ("cause" if one.cause_id == case.cause_id else "customer"),
        }
        for one in found[:RELATED_MAX]
    ]


def _activity(case: Case) -> list[dict[str, Any]]:
    """What people and the desk did about the case, newest first, from the ledger."""
    told = Event.objects.filter(workspace=case.workspace, run=case.run.run, action="")
    events = list(told.exclude(actor_kind="agent").order_by("-place")[:ACTIVITY_MAX])
    people = User.objects.in_bulk({int(e.actor) for e in events if is_number(e.actor)})
    return [
        {
            "who": str(people.get(int(event.actor), "somebody"))
            if is_number(event.actor)
            else f"The desk ({event.actor})",
            "words": event.type.partition(".")[2].replace("_", " ")
            + f" the {event.type.partition('.')[0]}",
            "comment": (event.data or {}).get("text") or (event.data or {}).get("reason") or "",
            "time": look.moment(event.received_at),
        }
        for event in events
    ]


def correction_of(case: Case) -> dict[str, Any] | None:
    found = Correction.objects.filter(case=case).order_by("-pk").first()
    if found is None:
        return None
    return {
        "state": found.state,
        "url": f"/w/{case.workspace.slug}/corrections/{found.pk}/",
        "words": f"{found.reference}: {found.title}",
    }
