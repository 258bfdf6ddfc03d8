"""Teams: who stands together, and what they may."""

from collections.abc import Collection, Iterable

from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.models import UserSession
from django.contrib.auth.models import Group, Permission
from django.db import transaction
from django.db.models.functions import Now
from guardian.shortcuts import assign_perm, remove_perm

from amends.protocol.vocabulary import EventType
from workspaces import delegations, independence, locks, outbox
from workspaces.access import Codename, people_with
from workspaces.models import (
    Invitation,
    LoginProvider,
    Membership,
    Team,
    User,
    Workspace,
    WorkspaceGroupPermission,
)


class NobodyLeft(Exception):
    """We stopped because the change would leave the workspace without an administrator."""


class GrantsChanged(Exception):
    """We stopped because what the team may is no longer what the page showed. Show it again."""


@transaction.atomic
def create(
    workspace: Workspace, name: str, *, by: User | None, may: Iterable[Codename] = ("view",)
) -> Team:
    """Make the team and grant it `may` on its workspace."""
    group = Group.objects.create(name=f"workspace {workspace.pk}: {name}")
    team = Team.objects.create(workspace=workspace, name=name, group=group)
    may = list(may)
    known = {one.codename: one for one in Permission.objects.filter(
        content_type__app_label="workspaces", content_type__model="workspace"
    )}  # fmt: skip
    WorkspaceGroupPermission.objects.bulk_create(
        WorkspaceGroupPermission(permission=known[codename], group=group, content_object=workspace)
        for codename in set(may)
    )
    outbox.record(workspace, EventType.TEAM_CREATED, by=by, data={"team": name, "may": may})
    return team


@transaction.atomic
def grant(team: Team, codename: Codename, *, by: User | None) -> None:
    assign_perm(f"workspaces.{codename}", team.group, team.workspace)
    outbox.record(
        team.workspace, EventType.TEAM_GRANTED, by=by, data={"team": team.name, "may": codename}
    )


@transaction.atomic
def withdraw(team: Team, codename: Codename, *, by: User | None) -> None:
    remove_perm(f"workspaces.{codename}", team.group, team.workspace)
    outbox.record(
        team.workspace, EventType.TEAM_WITHDRAWN, by=by, data={"team": team.name, "may": codename}
    )
    _end_what_rests_on_it(team.workspace)


def grants_of(team: Team) -> list[str]:
    return list(
        WorkspaceGroupPermission.objects.filter(group=team.group, content_object=team.workspace)
        .order_by("permission__codename")
        .values_list("permission__codename", flat=True)
    )


def grants_in(workspace: Workspace) -> dict[int, list[str]]:
    """What each group may in the workspace, by the group's id, in the order of the words."""
    found: dict[int, list[str]] = {}
    granted = WorkspaceGroupPermission.objects.filter(content_object=workspace)
    for group, codename in granted.order_by("permission__codename").values_list(
        "group_id", "permission__codename"
    ):
        found.setdefault(group, []).append(codename)
    return found


@transaction.atomic
def add(team: Team, person: User, *, by: User | None) -> None:
    """Put the person in; who stands in the team already was not brought in anew."""
    if not person.groups.filter(pk=team.group_id).exists():
        here = Team.objects.filter(workspace=team.workspace, group__user=person)
        if not here.exists() and is_opened_by_another_company(person, team.workspace):
            end_sessions(person)
        person.groups.add(team.group)
        _write_down(team, person, by)
    outbox.record(
        team.workspace,
        EventType.MEMBER_ADDED,
        by=by,
        data={"team": team.name, "person": person.email},
    )


def end_sessions(person: User) -> None:
    """Log them out of every browser."""
    for session in UserSession.objects.filter(user=person):
        session.end()


def is_opened_by_another_company(person: User, workspace: Workspace) -> bool:
    """Whether the log-in that another workspace has set lets them in. It opens no account that
    works here as well (config/providers.py), so no browser stays open in which it did, and who has
    no password chooses one as they join (workspaces/views/entrance.py).
    """
    theirs = SocialAccount.objects.filter(user=person).values("provider")
    of_others = LoginProvider.objects.exclude(workspace=workspace)
    return bool(of_others.filter(provider_id__in=theirs).exists())


def _write_down(team: Team, person: User, by: User | None) -> None:
    """Who brought them in, which keeps them from being a second pair of eyes for a while."""
    sponsors = independence.sponsors_of(by, person, team.workspace)
    Membership.objects.update_or_create(
        team=team,
        person=person,
        defaults={
            "workspace": team.workspace,
            "added_by": independence.who_brought_in(person, team.workspace) if by == person else by,
            "sponsors": sponsors,
            "added_at": Now(),
            "vouched_at": None,
        },
    )


@transaction.atomic
def remove(team: Team, person: User, *, by: User | None) -> None:
    """Take the person out; raises `NobodyLeft` for the last administrator."""
    person.groups.remove(team.group)
    Membership.objects.filter(team=team, person=person).delete()
    if "administer" in grants_of(team):
        _somebody_administers(team.workspace)
    outbox.record(
        team.workspace,
        EventType.MEMBER_REMOVED,
        by=by,
        data={"team": team.name, "person": person.email},
    )
    _end_what_rests_on_it(team.workspace)


@transaction.atomic
def set_grants(
    team: Team, codenames: Iterable[str], *, by: User | None, seen: Collection[str] | None = None
) -> None:
    """Grant exactly `codenames`; raises `NobodyLeft` if nobody could administer any more, and
    `GrantsChanged` where the team may something else by now than was `seen`: saved from a page that
    is old, a right that somebody has withdrawn would come back.
    """
    _one_at_a_time(team.workspace)
    wanted, standing = set(codenames), set(grants_of(team))
    if seen is not None and standing != set(seen):
        raise GrantsChanged(
            f"Somebody has changed what {team.name} may since you saw it, so nothing was saved."
            " Look at what it may now."
        )
    for codename in sorted(wanted - standing):
        grant(team, codename, by=by)  # type: ignore[arg-type]  # guardian refuses an unknown one
    for codename in sorted(standing - wanted):
        withdraw(team, codename, by=by)  # type: ignore[arg-type]  # it stood, so it is known
    _somebody_administers(team.workspace)


def _somebody_administers(workspace: Workspace) -> None:
    _one_at_a_time(workspace)
    if not people_with("administer", workspace).exists():
        raise NobodyLeft("Nobody could administer this workspace any more; nothing was changed.")


def _one_at_a_time(workspace: Workspace) -> None:
    """One such change after the other: two who take each other out would each see the other."""
    list(locks.locked(Workspace.objects.filter(pk=workspace.pk)).values_list("pk"))


def _end_what_rests_on_it(workspace: Workspace) -> None:
    """Delegations, and open invitations of people who may invite nobody any more."""
    delegations.look(workspace)
    open_ones = Invitation.objects.filter(workspace=workspace, accepted_at=None, withdrawn_at=None)
    unfounded = open_ones.exclude(invited_by__in=people_with("administer", workspace))
    for one in unfounded.exclude(invited_by=None):
        Invitation.objects.filter(pk=one.pk).update(withdrawn_at=Now())
        outbox.record(workspace, EventType.INVITATION_WITHDRAWN, by=None, data={"email": one.email})
