"""The company's directory: its tokens, and which teams it decides on."""

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from workspaces import directory, exporting, formatting, fresh_login, keys
from workspaces.access import may
from workspaces.models import DirectoryPerson, DirectoryToken, Workspace
from workspaces.pages import Request, is_number, page, page_by_moment, workspace_to

SHOWN_MAX = 200
BACK_MAX = 500
"""Who are let back in by one press: each of them is told of on the record."""
NAME_CHARACTERS_MAX = 120
HOUR_SECONDS = 3600


@login_required
@require_GET
def overview(request: Request, workspace: str) -> HttpResponseBase:
    here = workspace_to("administer", request, workspace)
    if exporting.is_asked(request):
        people = directory.people_of(here).select_related("person")
        tables: dict[str, exporting.Table] = {
            "directory-tokens": (_tokens(here), TOKENS),
            "directory-people": (people.order_by("pk"), PEOPLE),
        }
        return exporting.table(request, tables, exporting.cleaner(request.user, here))
    return _page(request, here)


def _tokens(here: Workspace) -> QuerySet[DirectoryToken]:
    living = DirectoryToken.objects.filter(workspace=here, revoked_at=None)
    return living.select_related("created_by", "workspace").order_by("pk")


def _may_still(token: DirectoryToken) -> bool:
    """Whether who made it may still make one: it goes on working either way."""
    maker = token.created_by
    return maker is not None and may(maker, "administer", token.workspace)


TOKENS: exporting.Columns = {
    "token": "name",
    "prefix": "prefix",
    "made_by": lambda one: str(one.created_by or ""),
    "maker_administers": _may_still,
    "made_at": "created_at",
    "last_used_at": "last_used_at",
}
PEOPLE: exporting.Columns = {
    "user_name": "user_name",
    "account": lambda one: one.person.email if one.person else "",
    "active": "active",
    "changed_at": "changed_at",
}


def _page(request: Request, here: Workspace, *, token: str = "", status: int = 200) -> HttpResponse:
    people = directory.people_of(here).select_related("person")
    groups, hours = directory.groups_of(here), here.probation_seconds / HOUR_SECONDS
    theirs = {one.team_id for one in groups}
    gone = directory.who_left(here).select_related("person")
    left, pager = page_by_moment(request, gone, "changed_at")
    nameless = people.filter(active=True, person=None).order_by("pk")
    context = {
        "workspace": here,
        "tab": "directory",
        "title": "Directory",
        "lead": "Your company’s directory says who works here (SCIM 2.0): people come with its"
        " groups, and who leaves is out at once.",
        "address": f"{settings.AMENDS_URL}/scim/v2/{here.slug}",
        "token": token,
        **fresh_login.asked_for(request, reverse("workspaces:directory", args=[here.slug])),
        "tokens": [
            {"token": one, "is_theirs": _may_still(one)} for one in _tokens(here)[:SHOWN_MAX]
        ],
        "groups": [
            {"team": one.team, "called": one.renamed, "count": len(one.members)} for one in groups
        ],
        "others": [team for team in here.teams.order_by("name") if team.pk not in theirs],
        "count": people.filter(active=True).count(),
        "probation": "1 hour" if hours == 1 else f"{hours:g} hours",
        "left": left,
        "pager": pager | {"files": []},
        "speaks": directory.may_speak(here),
        "waiting": nameless[:SHOWN_MAX],
        "waiting_more": max(0, nameless.count() - SHOWN_MAX),
    }
    return page(request, "workspaces/directory.html", context, status=status)


@never_cache
@login_required
@require_POST
def make_token(request: Request, workspace: str) -> HttpResponse:
    """Show it once: only its digest is kept. Whoever holds it says who works here, so it takes a
    fresh log-in, as what is critical does.
    """
    here = workspace_to("administer", request, workspace)
    if not fresh_login.is_fresh(fresh_login.login_at(request)):
        return _page(request, here, status=422)
    name = " ".join(request.POST.get("name", "").split())[:NAME_CHARACTERS_MAX] or "directory"
    _, token = keys.create_directory_token(here, by=request.user, name=name)
    return _page(request, here, token=token)


@login_required
@require_POST
def revoke_token(request: Request, workspace: str, pk: int) -> HttpResponse:
    here = workspace_to("administer", request, workspace)
    keys.revoke(get_object_or_404(DirectoryToken, pk=pk, workspace=here), by=request.user)
    messages.success(request, "Revoked. Who stands in teams by it stays there.")
    return redirect("workspaces:directory", workspace=here.slug)


@login_required
@require_POST
def hand_over(request: Request, workspace: str) -> HttpResponse:
    """Let the directory decide on a team of before."""
    here = workspace_to("administer", request, workspace)
    chosen = request.POST.get("team", "")
    team = get_object_or_404(here.teams, pk=chosen if is_number(chosen) else None)
    directory.hand_over(team, by=request.user)
    messages.success(request, f"The directory decides on {team.name}.")
    return redirect("workspaces:directory", workspace=here.slug)


@login_required
@require_POST
def let_back_in(request: Request, workspace: str, pk: int) -> HttpResponse:
    """Somebody whom the directory does not bring back by itself."""
    here = workspace_to("administer", request, workspace)
    row = get_object_or_404(directory.may_come_back(here).select_related("person"), pk=pk)
    directory.let_back_in(DirectoryPerson.objects.filter(pk=pk), by=request.user)
    messages.success(request, f"Groups of the log-in put {row.person} into their teams again.")
    return redirect("workspaces:directory", workspace=here.slug)


@login_required
@require_POST
def let_all_back_in(request: Request, workspace: str) -> HttpResponse:
    """Everybody who left, where the company has ended its directory."""
    here = workspace_to("administer", request, workspace)
    if directory.may_speak(here):
        raise Http404("The directory speaks still.")
    some = directory.may_come_back(here).order_by("pk").values("pk")[:BACK_MAX]
    count = directory.let_back_in(DirectoryPerson.objects.filter(pk__in=some), by=request.user)
    more = directory.may_come_back(here).count()
    words = f" {formatting.count(more)} are still out: press once more." if more else ""
    messages.success(
        request, f"Back in, by the groups of the log-in: {formatting.count(count)}.{words}"
    )
    return redirect("workspaces:directory", workspace=here.slug)
