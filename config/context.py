"""What every page of a workspace shows around itself: places with their counts, pauses, alarms;
and where a page of an account leads back to.

Counts are capped: past a thousand nobody reads the number, and counting them all is the first thing
that dies on a large desk.
"""

from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.db import connection
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from approvals import awaiting, pauses
from approvals.models import Pause
from approvals.policy import PolicyUnreadable
from config.health import WORKER
from config.middleware import page_of_form
from workspaces import formatting, periodic
from workspaces.access import may, workspace_ids_of, workspaces_of
from workspaces.models import User, Workspace
from workspaces.pages import found_before
from workspaces.periodic import SCHEDULER, SWEEPER

COUNT_MAX = 1_000
WORKSPACES_MAX = 100
PAUSES_MAX = 20
CAME_FROM = "came_from"
PLACE_CHARACTERS_MAX = 500
STOPPED = {
    SCHEDULER: "No case is opened and nothing is sealed until it is back.",
    WORKER: "No approved plan goes on until it is back.",
}
"""Processes whose silence the pages tell, and what waits for them."""

# One statement, written out: this stands around every page, and each question that the ORM builds
# anew costs a page a millisecond. `unmet` is what the policy in force asks and nobody can meet; of
# no workspace (`here` is NULL) nothing waits.
FRAME = f"""
SELECT
    (SELECT count(*) FROM (SELECT FROM recovery_case
        WHERE workspace_id = %(here)s AND state <> 'closed' AND NOT without_effects
            AND (snoozed_until IS NULL OR snoozed_until <= statement_timestamp())
        LIMIT %(limit)s) open_cases),
    (SELECT unmet ->> 0 FROM approvals_policyversion
        WHERE workspace_id = %(here)s AND active LIMIT 1),
    EXISTS (SELECT FROM approvals_pause WHERE workspace_id = %(here)s AND lifted_at IS NULL),
    (SELECT array[count(opened_at), count(*)] FROM approvals_brokenglass
        WHERE workspace_id = %(here)s AND reviewed_at IS NULL),
    ARRAY(SELECT array[name, slug] FROM workspaces_workspace
        WHERE id = ANY(%(mine)s::bigint[]) ORDER BY name LIMIT {WORKSPACES_MAX})"""  # noqa: S608


def desk(request: HttpRequest) -> dict[str, Any]:
    """`nav`, read only if the template asks for it, and `zone`; of an account `came_from`."""
    match = request.resolver_match
    slug = match.kwargs.get("workspace") if match else None
    if not request.user.is_authenticated:
        return {}
    if not slug:
        return {CAME_FROM: _came_from(request)} if request.path.startswith("/accounts/") else {}
    zone = timezone.get_current_timezone()
    return {"nav": SimpleLazyObject(lambda: _nav(request, slug)), "zone": zone}


def _came_from(request: HttpRequest) -> str:
    """The page of a workspace that somebody left for those of their account, however many of these
    they went through since; without one where the desk begins.
    """
    place = page_of_form(request)
    if place != "/" and len(place) <= PLACE_CHARACTERS_MAX:
        request.session[CAME_FROM] = place
    return str(request.session.get(CAME_FROM, "/"))


def _nav(request: HttpRequest, slug: str) -> dict[str, Any]:
    """What the frame says; unmet as it was last looked at."""
    person, mine = request.user, workspace_ids_of(request.user)
    here = found_before(request, slug) or workspaces_of(person).filter(slug=slug).first()
    given: dict[str, Any] = {
        "here": here.pk if here else None, "mine": mine, "limit": COUNT_MAX + 1,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(FRAME, given)
        open_cases, unmet, is_paused, (broken, glasses), switcher = cursor.fetchone()
    asked = awaiting.count(here, person, COUNT_MAX + 1) if here else 0
    return {
        "workspaces": [
            {"name": name, "url": f"/w/{its_slug}/queue/", "current": its_slug == slug}
            for name, its_slug in switcher
        ],
        "queue": _capped(open_cases),
        "approvals": _capped(asked),
        "glasses": glasses,
        "broken_glasses": broken,
        "pauses": _pauses(here) if here and is_paused else [],
        **_unmet(unmet or ""),
        **_processes(here, person),
    }


def _processes(here: Workspace | None, person: User | AnonymousUser) -> dict[str, Any]:
    """Which of the desk's processes have stopped: the engine for everybody, the others for who may
    do something about it. When the watch has stopped as well, this page is where people hear of it.
    """
    silent = periodic.silent([SWEEPER, *STOPPED])
    engine, others = silent.pop(SWEEPER, None), []
    if silent and here and (may(person, "recover", here) or may(person, "administer", here)):
        others = [
            {"name": name, "since": formatting.moment(since), "waits": STOPPED[name]}
            for name, since in sorted(silent.items())
        ]
    return {
        "engine_off": formatting.moment(engine) if engine else None,
        "stopped": others,
        "nobody_tells": engine is not None and SCHEDULER in silent,
    }


def _unmet(told: str) -> dict[str, str]:
    """It is told apart from a policy that is none at all."""
    is_unreadable = told.startswith(PolicyUnreadable.TOLD)
    return {
        "unmet": "" if is_unreadable else told,
        "unreadable": told.removeprefix(PolicyUnreadable.TOLD) if is_unreadable else "",
    }


def _capped(number: int) -> str | None:
    return formatting.count(number, COUNT_MAX) if number else None


def _pauses(here: Workspace) -> list[dict[str, Any]]:
    standing = Pause.objects.standing().filter(workspace=here).select_related("paused_by")
    newest = list(standing.order_by("-paused_at")[:PAUSES_MAX])
    return [
        {
            "what": pauses.what(one),
            "by": pauses.placed_by(one),
            "reason": one.reason,
            "since": formatting.moment(one.paused_at),
            "holds": str(held),
            "url": f"/w/{here.slug}/policies/",
        }
        for one, held in zip(newest, pauses.held_runs(newest), strict=True)
    ]
