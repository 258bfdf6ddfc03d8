"""What every page of a workspace shows around itself: places with their counts, pauses, alarms.

Counts are capped: past a thousand nobody reads the number, and counting them all is the first thing
that dies on a large desk.
"""

from typing import Any
from zoneinfo import ZoneInfo

from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from approvals import deciders, pauses
from approvals.models import Approval, Pause, PolicyVersion
from recovery.models import Case
from workspaces import beats, look
from workspaces.access import workspaces_of
from workspaces.models import Workspace
from workspaces.periodic import SWEEPER

COUNT_MAX = 1_000
WORKSPACES_MAX = 100
PAUSES_MAX = 20


def desk(request: HttpRequest) -> dict[str, Any]:
    """`workspace`, `nav` and `zone`; each is read only if the template asks for it."""
    match = request.resolver_match
    slug = match.kwargs.get("workspace") if match else None
    if not slug or not request.user.is_authenticated:
        return {}
    return {"nav": SimpleLazyObject(lambda: _nav(request, slug)), "zone": _zone(request)}


def _zone(request: HttpRequest) -> ZoneInfo:
    """The person's own zone if they chose one; the script puts the browser's."""
    return ZoneInfo(getattr(request.user, "timezone", "") or "UTC")


def _nav(request: HttpRequest, slug: str) -> dict[str, Any]:
    mine = list(workspaces_of(request.user).order_by("name")[:WORKSPACES_MAX])
    here = next((workspace for workspace in mine if workspace.slug == slug), None)
    return {
        "workspaces": [
            {"name": one.name, "url": f"/w/{one.slug}/queue/", "current": one.slug == slug}
            for one in mine
        ],
        **(_counts(request, here) if here else {}),
        "pauses": _pauses(here) if here else [],
        "unmet": _unmet(here) if here else "",
        "engine_off": _engine_off(),
    }


def _engine_off() -> str | None:
    since = beats.silent_since(SWEEPER)
    return look.ago(since) if since else None


def _unmet(here: Workspace) -> str:
    """What the policy in force asks and nobody can meet, as it was last looked at."""
    versions = PolicyVersion.objects.filter(workspace=here, active=True)
    found = versions.values_list("unmet", flat=True).first()
    return str(found[0]) if found else ""


def _counts(request: HttpRequest, here: Workspace) -> dict[str, str | None]:
    open_cases = Case.objects.filter(workspace=here).exclude(state="closed")
    awaiting = deciders.awaiting(Approval.objects.filter(workspace=here), request.user)
    return {"queue": _capped(open_cases), "approvals": _capped(awaiting)}


def _capped(rows: Any) -> str | None:
    number = rows.order_by()[: COUNT_MAX + 1].count()
    return look.count(number, COUNT_MAX) if number else None


def _pauses(here: Workspace) -> list[dict[str, Any]]:
    standing = Pause.objects.filter(workspace=here, lifted_at=None).select_related("paused_by")
    return [
        {
            "what": f"{one.get_kind_display()} {one.name}".strip(),
            "by": str(one.paused_by),
            "reason": one.reason,
            "since": look.ago(one.paused_at, timezone.now()),
            "holds": f"{pauses.held_runs(one)} runs",
            "url": f"/w/{here.slug}/policies/",
        }
        for one in standing.order_by("-paused_at")[:PAUSES_MAX]
    ]
