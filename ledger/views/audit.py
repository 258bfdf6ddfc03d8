"""The audit: what people did, newest first, read from the ledger itself."""

import re
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpResponse
from django.views.decorators.http import require_GET

from amends.protocol.vocabulary import EventType
from ledger.models import Event
from ledger.replaying import words_of
from workspaces import formatting
from workspaces.models import User, Workspace
from workspaces.pages import Request, is_number, page, workspace_or_404

PAGE = 50
ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|sha256:[0-9a-f]+")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d[0-9:.]*(Z|\+00:00)")
NAMED_FIRST = ("agent", "key", "connection", "team", "person", "case", "plan", "approval", "tool")
WORDS_CHARACTERS_MAX = 300
# What the chips above the list stand for: types that begin so.
KINDS = {
    "all": (),
    "recovery": ("case.", "plan.", "step.", EventType.ACTION_SETTLED, "resume.", "correction."),
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
    events = list(_acts(here, kind, int(before) if is_number(before) else None)[: PAGE + 1])
    people = User.objects.in_bulk({int(e.actor) for e in events if is_number(e.actor)})
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
    who = people.get(int(event.actor)) if is_number(event.actor) else None
    data = event.data if isinstance(event.data, dict) else {}
    said = " · ".join(
        f"{key.replace('_', ' ')} {words}"
        for key, value in sorted(data.items(), key=_rank)
        if not _is_for_machines(key, value) and (words := _short(value))
    )
    root = f"/w/{here.slug}"
    return {
        "time": formatting.moment(event.received_at),
        "who": str(who) if who else event.actor,
        "words": words_of(event),
        "details": said[:WORDS_CHARACTERS_MAX],
        "subject": event.run,
        "subject_url": f"{root}/runs/{event.run}/" if event.run else "",
        "entry": str(event.place),
        "entry_url": f"{root}/ledger/{event.event_id}/",
    }


def _rank(said: tuple[str, Any]) -> int:
    """What it was done to comes first; the rest as it was said."""
    return NAMED_FIRST.index(said[0]) if said[0] in NAMED_FIRST else len(NAMED_FIRST)


def _is_for_machines(key: str, value: Any) -> bool:
    """Digests, ids and the clock stand in the entry itself; nobody reads them in a list."""
    return key == "at" or key.endswith("digest") or bool(ID.fullmatch(str(value)))


def _short(value: Any) -> str:
    """In words; of a list of things how many, and of one thing with parts nothing."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        plain = all(isinstance(one, str | int) for one in value)
        words = [str(one) for one in value if not ID.fullmatch(str(one))] if plain else []
        return ", ".join(words) if plain else str(len(value))
    if isinstance(value, dict):
        return ", ".join(one for one in value.values() if isinstance(one, str))
    text = str(value)
    return f"{text[:10]} {text[11:16]} UTC" if MOMENT.fullmatch(text) else text
