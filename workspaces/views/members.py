"""Members of a workspace: people, teams and what these may, invitations, who decides for whom."""

from collections.abc import Mapping
from copy import copy
from datetime import timedelta
from typing import Any

from django.conf import settings as configuration
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.mail import send_mail
from django.db import transaction
from django.db.models import Count, Prefetch, QuerySet
from django.db.models.functions import Now
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from amends.protocol.canonical import digest
from amends.protocol.vocabulary import EventType
from workspaces import (
    clock,
    delegations,
    entrance,
    exporting,
    formatting,
    locks,
    outbox,
    pages,
    teams,
)
from workspaces.access import may, require, workspaces_of
from workspaces.delegations import Term
from workspaces.forms import (
    CODENAMES,
    DelegationForm,
    InviteForm,
    PersonForm,
    TeamForm,
    WorkspaceForm,
)
from workspaces.free_text import InvalidInput
from workspaces.models import Delegation, Invitation, Team, User, Workspace
from workspaces.moves import CannotMove
from workspaces.pages import Request, is_number, page, workspace_or_404, workspace_to

# Settings of a workspace: its name and zone, members and teams, agents and keys.


@login_required
@require_http_methods(["GET", "POST"])
def settings(request: Request, workspace: str) -> HttpResponse:
    """The workspace's own settings, and the person's."""
    here = workspace_or_404(request, workspace)
    said, of_person = request.POST or None, "single_keys_known" in request.POST
    form = WorkspaceForm(None if of_person else said, instance=copy(here))
    of_browser = pages.zone_of_browser(request)
    person = PersonForm(
        said if of_person else None, instance=copy(request.user), browser=of_browser
    )
    if person.is_valid():
        _save_own(request.user, person.cleaned_data)
        messages.success(request, "Saved for you, in every workspace.")
        return redirect("workspaces:settings", workspace=here.slug)
    status = 422 if form.errors or person.errors else 200
    if form.is_valid():
        try:
            _save(here, form.cleaned_data, by=request.user, seen=request.POST.get("seen"))
        except CannotMove as refusal:
            form.add_error(None, str(refusal))
            here.refresh_from_db()
            status = 409
        else:
            messages.success(request, "Saved.")
            return redirect("workspaces:settings", workspace=here.slug)
    return page(
        request,
        "workspaces/settings.html",
        {
            "workspace": here,
            "form": form,
            "seen_as": pages.still_seen(request, status) or _as_seen(here),
            "person_form": person,
            "stuck_after": formatting.span(timedelta(seconds=here.stuck_after_seconds)),
            "may_administer": may(request.user, "administer", here),
        },
        status=status,
    )


def _as_seen(here: Workspace) -> str:
    """What the form shows, told apart from what it showed before."""
    return digest([getattr(here, name) for name in WorkspaceForm.Meta.fields])


@transaction.atomic
def _save(here: Workspace, asked: dict[str, Any], *, by: User, seen: str | None) -> None:
    """Raises NotAllowed, or CannotMove where something else stands there than was `seen`: of two
    old pages the last would put back what the first has changed.
    """
    require(by, "administer", here)
    now = locks.locked(Workspace.objects.filter(pk=here.pk)).get()
    if seen not in {None, _as_seen(now)}:
        raise CannotMove(
            now, "changed",
            "Somebody has changed these settings since you saw them, so nothing was saved. They are"
            f" {formatting.quoted(now.name)} and {now.timezone} now; what you chose stands below.",
        )  # fmt: skip
    was = {name: getattr(now, name) for name in asked if getattr(now, name) != asked[name]}
    Workspace.objects.filter(pk=here.pk).update(**asked)
    new = {name: asked[name] for name in was}
    outbox.record(here, EventType.WORKSPACE_CHANGED, by=by, data=new | {"was": was})


@transaction.atomic
def _save_own(person: User, said: dict[str, Any]) -> None:
    """A new name is on the record of every workspace, for what they did stands under it, too."""
    was = person.name
    User.objects.filter(pk=person.pk).update(**said)
    if said["name"] != was:
        data = {"person": person.email, "name": said["name"], "was": was}
        for here in workspaces_of(person):
            outbox.record(here, EventType.MEMBER_RENAMED, by=person, data=data)


LIST_MAX = 500


def shown(
    request: Request,
    here: Workspace,
    *,
    invite: InviteForm | None = None,
    team: TeamForm | None = None,
    delegation: DelegationForm | None = None,
    invited: Mapping[str, Any] | None = None,
) -> HttpResponse:
    """The page of the members, with a form that was not taken or an invitation that was made."""
    all_teams = list(
        here.teams.order_by("name")
        .select_related("group")
        .prefetch_related(Prefetch("group__user_set", User.objects.order_by("name", "email")))
    )
    people = _people(here)[:LIST_MAX]
    of_group = {team.group_id: team for team in all_teams}
    grants = teams.grants_in(here)
    context = {
        "workspace": here,
        "teams": [
            {
                "team": team,
                "may": (granted := grants.get(team.group_id, [])),
                "may_words": ", ".join(granted).replace("_", " "),
                "people": list(team.group.user_set.all()[:LIST_MAX]),
            }
            for team in all_teams
        ],
        "people": [
            {
                "person": person,
                "teams": [of_group[g.pk] for g in person.standing if g.pk in of_group],
            }
            for person in people
        ],
        "pager": pages.whole(request, people),
        "invitations": _invitations(here),
        "invite_form": invite or InviteForm(workspace=here),
        "team_form": team or TeamForm(workspace=here),
        **_deputies(here, request.user, delegation),
        "codenames": CODENAMES,
        "invited": invited,
        "company": configuration.OIDC_URL,
        "company_teams": configuration.OIDC_TEAMS,
        "may_administer": may(request.user, "administer", here),
    }
    wrong = any(form is not None and form.errors for form in (invite, team, delegation))
    return page(request, "workspaces/members.html", context, status=422 if wrong else 200)


def _people(here: Workspace) -> QuerySet[Any]:
    found = User.objects.filter(groups__team__workspace=here).distinct().order_by("name", "email")
    return found.prefetch_related(Prefetch("groups", to_attr="standing"))


def _invitations(here: Workspace) -> QuerySet[Invitation]:
    """Those that can still be taken, the newest first."""
    open_ = Invitation.objects.filter(workspace=here, accepted_at=None, withdrawn_at=None)
    return open_.filter(expires_at__gt=Now()).prefetch_related("teams").order_by("-created_at")


def _deputies(here: Workspace, person: User, form: DelegationForm | None) -> dict[str, Any]:
    """Who decides for whom, and the form for who has something to hand over."""
    gives = may(person, "approve", here)
    return {
        "delegations": [
            {"row": row, "may_revoke": delegations.may_revoke(row, person)}
            for row in delegations.of(here)[:LIST_MAX]
        ],
        "delegation_form": (form or DelegationForm(workspace=here, person=person))
        if gives
        else None,
    }


@login_required
@require_GET
def members(request: Request, workspace: str) -> HttpResponseBase:
    here = workspace_or_404(request, workspace)
    if not exporting.is_asked(request):
        return shown(request, here)
    named = dict(here.teams.values_list("group", "name"))
    columns: exporting.Columns = {
        "name": "name",
        "email": "email",
        "active": "is_active",
        "teams": lambda one: ", ".join(named[g.pk] for g in one.standing if g.pk in named),
    }
    grants = teams.grants_in(here)
    return exporting.table(
        request,
        {
            "members": (_people(here), columns),
            "teams": (
                here.teams.order_by("name").annotate(count=Count("group__user")),
                {
                    "team": "name",
                    "may": lambda one: ", ".join(grants.get(one.group_id, [])),
                    "people": "count",
                },
            ),
            "who-decides-for-whom": (delegations.of(here), DELEGATED),
            "invitations": (_invitations(here), INVITED),
        },
        exporting.cleaner(request.user, here),
    )


DELEGATED: exporting.Columns = {
    "who": lambda one: str(one.delegate),
    "decides_for": lambda one: str(one.delegator),
    "team": lambda one: str(one.team or ""),
    "from": "starts_at",
    "until": "until",
    "why": "reason",
}
INVITED: exporting.Columns = {
    "address": "email",
    "teams": lambda one: ", ".join(team.name for team in one.teams.all()),
    "made_at": "created_at",
    "until": "expires_at",
}


@never_cache
@login_required
@require_POST
def invite(request: Request, workspace: str) -> HttpResponse:
    """Send a link, and show it once: not every desk can send mail."""
    here = workspace_to("administer", request, workspace)
    form = InviteForm(request.POST, workspace=here)
    if not form.is_valid():
        return shown(request, here, invite=form)
    email = form.cleaned_data["email"]
    try:
        token = entrance.invite(here, email, form.cleaned_data["teams"], by=request.user)
    except entrance.LimitReached as limit:
        form.add_error(None, str(limit))
        return shown(request, here, invite=form)
    link = f"{configuration.AMENDS_URL}/join/{token}/"
    person = User.objects.filter(email__iexact=email).first()
    # A company may read the mail of its people: log-in and link together would be its own.
    by_hand = person is not None and entrance.needs_password(person, here)
    invited = {
        "link": link,
        "email": email,
        "by_hand": by_hand,
        "mailed": not by_hand and _mail_invitation(here, email, link, by=request.user),
    }
    return shown(request, here, invited=invited)


def _mail_invitation(here: Workspace, email: str, link: str, *, by: User) -> bool:
    """Whether it left: not every desk can send mail."""
    subject = formatting.plain(f"{by} invites you to {here.name} on Amends")
    text = f"""{subject}, where people see what software agents did and put right what went wrong.

Open this link within {entrance.INVITATION_DAYS} days. It works once, for this address alone:

{link}

If you know nobody there, do nothing: no account is made before you open it.
"""
    try:
        send_mail(subject, text, None, [email])
    except OSError:
        return False
    return True


@login_required
@require_POST
def withdraw_invitation(request: Request, workspace: str, pk: int) -> HttpResponse:
    here = workspace_to("administer", request, workspace)
    invitation = get_object_or_404(Invitation, pk=pk, workspace=here)
    entrance.withdraw(invitation, by=request.user)
    messages.success(
        request, f"The invitation to {invitation.email} is withdrawn: its link opens nothing."
    )
    return redirect("workspaces:members", workspace=here.slug)


@login_required
@require_POST
def make_team(request: Request, workspace: str) -> HttpResponse:
    here = workspace_to("administer", request, workspace)
    form = TeamForm(request.POST, workspace=here)
    if not form.is_valid():
        return shown(request, here, team=form)
    name = form.cleaned_data["name"]
    teams.create(here, name, by=request.user, may=form.cleaned_data["may"])
    messages.success(request, f"The team {name} is made. Nobody is in it yet.")
    return redirect("workspaces:members", workspace=here.slug)


@login_required
@require_POST
def change_team(request: Request, workspace: str, pk: int) -> HttpResponse:
    """Grant what is ticked and withdraw the rest; the last administrator's grant stays."""
    here = workspace_to("administer", request, workspace)
    team = get_object_or_404(Team, pk=pk, workspace=here)
    try:
        may_all = {codename for codename, _ in CODENAMES}
        ticked = may_all.intersection(request.POST.getlist("may"))
        seen = request.POST["seen"].split() if "seen" in request.POST else None
        teams.set_grants(team, ticked, by=request.user, seen=seen)
        messages.success(request, f"What {team.name} may is saved.")
    except (teams.NobodyLeft, teams.GrantsChanged) as refusal:
        messages.error(request, str(refusal))
    return redirect("workspaces:members", workspace=here.slug)


@login_required
@require_POST
def change_membership(request: Request, workspace: str, pk: int) -> HttpResponse:
    """`person` joins or leaves the team, as `act` says."""
    here = workspace_to("administer", request, workspace)
    team = get_object_or_404(Team, pk=pk, workspace=here)
    known = User.objects.filter(groups__team__workspace=here).distinct()
    chosen = request.POST.get("person", "")
    person = get_object_or_404(known, pk=chosen if is_number(chosen) else None)
    try:
        if request.POST.get("act") == "add":
            teams.add(team, person, by=request.user)
            messages.success(request, f"{person} is in {team.name} now.")
        else:
            teams.remove(team, person, by=request.user)
            left = "" if known.filter(pk=person.pk).exists() else ", and no longer works here"
            messages.success(request, f"{person} is no longer in {team.name}{left}.")
    except teams.NobodyLeft as refusal:
        messages.error(request, str(refusal))
    return _back(request, here)


@login_required
@require_POST
def leave_team(request: Request, workspace: str, pk: int) -> HttpResponse:
    """Out of a team of one's own: it needs no right, and is never the last administrator."""
    here = workspace_or_404(request, workspace)
    team = get_object_or_404(Team, pk=pk, workspace=here)
    if not delegations.teams_of(request.user, here).filter(pk=team.pk).exists():
        messages.error(request, f"You are not in {team.name}: nothing was changed.")
        return _back(request, here)
    try:
        teams.remove(team, request.user, by=request.user)
        messages.success(request, f"You are no longer in {team.name}.")
    except teams.NobodyLeft as refusal:
        messages.error(request, str(refusal))
    return _back(request, here)


def _back(request: Request, here: Workspace) -> HttpResponse:
    """To the members, or, for who has just gone, to where they still are."""
    if not may(request.user, "view", here):
        return redirect("workspaces:home")
    return redirect("workspaces:members", workspace=here.slug)


@login_required
@require_POST
def delegate(request: Request, workspace: str) -> HttpResponse:
    here = workspace_to("approve", request, workspace)
    form = DelegationForm(request.POST, workspace=here, person=request.user)
    if form.is_valid():
        said = form.cleaned_data
        term = Term(said["starts_at"] or clock.now(), said["until"])
        try:
            row = delegations.give(
                here, by=request.user, to=said["to"], team=said["team"], term=term,
                reason=said["reason"],
            )  # fmt: skip
        except InvalidInput as wrong:
            form.add_error(None, str(wrong))
        else:
            later = row.starts_at > clock.now()
            since = f" from {formatting.moment(row.starts_at)} on" if later else ""
            messages.success(request, f"{row.delegate} decides for you{since}.")
            return redirect("workspaces:members", workspace=here.slug)
    return shown(request, here, delegation=form)


@login_required
@require_POST
def revoke_delegation(request: Request, workspace: str, pk: int) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    row = get_object_or_404(
        Delegation.objects.select_related("workspace", "delegator", "delegate", "team"),
        pk=pk,
        workspace=here,
    )
    delegations.revoke(row, by=request.user)
    messages.success(request, f"{row.delegate} no longer decides for {row.delegator}.")
    return redirect("workspaces:members", workspace=here.slug)
