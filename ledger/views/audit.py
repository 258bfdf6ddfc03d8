"""The audit: what people did, newest first, read from the ledger itself."""

import json
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpResponse
from django.views.decorators.http import require_GET

from ledger.models import Event
from ledger.replaying import words_of
from workspaces import look
from workspaces.models import User, Workspace
from workspaces.pages import Request, page, workspace_or_404

PAGE = 50
WORDS_CHARACTERS_MAX = 300
# What the chips above the list stand for: types that begin so.
KINDS = {
    "all": (),
    "recovery": ("case.", "plan.", "step.", "action.settled", "resume.", "correction."),
    "approvals": ("approval.",),
    "members and keys": ("member.", "team.", "invitation.", "key.", "agent."),
    "rules": ("policy.", "connection.", "pause.", "workspace."),
    "kept": ("ledger.", "payload."),
}


@login_required
@require_GET
def audit(request: Request, workspace: str) -> HttpResponse:
    """Acts of people, by keyset on the ledger's place; `?kind=` narrows, `?before=` goes on."""
    here = workspace_or_404(request, workspace)
    kind = request.GET.get("kind", "all")
    kind = kind if kind in KINDS else "all"
    before = request.GET.get("before", "")
    events = list(_acts(here, kind, int(before) if before.isdigit() else None)[: PAGE + 1])
    people = User.objects.in_bulk({int(e.actor) for e in events if e.actor.isdigit()})
    older = f"?kind={kind}&before={events[PAGE - 1].place}" if len(events) > PAGE else ""
    context = {
        "workspace": here,
        "tab": "audit",
        "title": "Audit",
        "lead": "Who did what. Each line is an entry of the ledger, with its proof behind it.",
        "filters": [
            {"name": name.capitalize(), "url": f"?kind={name}", "current": name == kind}
            for name in KINDS
        ],
        "acts": [_told(here, event, people) for event in events[:PAGE]],
        "pager": {"label": f"{min(len(events), PAGE)} acts", "previous": "", "next": older},
    }
    return page(request, "workspaces/audit.html", context)


def _acts(here: Workspace, kind: str, before: int | None) -> QuerySet[Event]:
    acts = Event.objects.filter(workspace=here, actor_kind="person").order_by("-place")
    if before is not None:
        acts = acts.filter(place__lt=before)
    if KINDS[kind]:
        pattern = "^(" + "|".join(word.replace(".", r"\.") for word in KINDS[kind]) + ")"
        acts = acts.filter(type__regex=pattern)
    return acts


def _told(here: Workspace, event: Event, people: dict[int, User]) -> dict[str, Any]:
    who = people.get(int(event.actor)) if event.actor.isdigit() else None
    data = event.data if isinstance(event.data, dict) else {}
    said = " · ".join(
        f"{key.replace('_', ' ')} {_short(value)}"
        for key, value in data.items()
        if value not in ("", [], None) and not _is_for_machines(key)
    )
    root = f"/w/{here.slug}"
    return {
        "time": look.moment(event.received_at),
        "who": str(who) if who else event.actor,
        "words": words_of(event),
        "details": said[:WORDS_CHARACTERS_MAX],
        "subject": event.run,
        "subject_url": f"{root}/runs/{event.run}/" if event.run else "",
        "entry": str(event.place),
        "entry_url": f"{root}/ledger/{event.event_id}/",
    }


def _is_for_machines(key: str) -> bool:
    """Digests and the clock stand in the entry itself; nobody reads them in a list."""
    return key == "at" or key.endswith("digest")


def _short(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(one, str | int) for one in value):
        return ", ".join(str(one) for one in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
