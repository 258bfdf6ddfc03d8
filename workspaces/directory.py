"""What a company's directory says of people and groups, done here: teams, and who is out.

A group of the directory is a team. Only teams that it made, or that an administrator handed over,
are its own; of the others nobody is put in or out by it, until somebody leaves: then they are out
of every team of the workspace at once, and with that their delegations, and each yes of theirs that
is not used yet. Whoever made its token vouches for whom it brings in (workspaces/independence.py).
"""

import logging

from allauth.socialaccount.models import SocialAccount
from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from amends.protocol.vocabulary import EventType
from workspaces import fresh_login, independence, keys, outbox, teams
from workspaces.access import workspaces_of
from workspaces.models import (
    DirectoryGroup,
    DirectoryPerson,
    DirectoryToken,
    Invitation,
    LoginProvider,
    PersonToken,
    Team,
    User,
    Workspace,
)

logger = logging.getLogger(__name__)

PEOPLE_MAX = 20_000
"""Of one workspace: a directory sends only whom it was told to."""
GROUPS_MAX = 500


class NameTaken(Exception):
    """We stopped because this name or account is another's here; the message says whose."""


class DirectoryFull(Exception):
    """We stopped because the workspace has as many people or groups as it can take."""


@transaction.atomic
def settle(row: DirectoryPerson, *, address: str, name: str, by: DirectoryToken) -> None:
    """Bring account and teams to what the directory says of the person now. An account is found
    or made by the first address; its own address stays its person's to change. Raises NameTaken.
    """
    if row.person is None and address and row.active:
        _give_account(row, address, name)
    if row.person is None:
        return
    if not row.active:
        put_out(row.workspace, row.person)
        return
    person = row.person
    stands = set(person.groups.values_list("pk", flat=True))
    for group in groups_of(row.workspace):
        is_member = row.pk in group.members
        if is_member and group.team.group_id not in stands:
            teams.add(group.team, person, by=by.created_by)
        elif not is_member and group.team.group_id in stands:
            take_out(group.team, person)


def _give_account(row: DirectoryPerson, address: str, name: str) -> None:
    """No password is set and no address taken as proven: the person does that by themselves."""
    person = User.objects.filter(email__iexact=address).first()
    if person is None:
        person = User.objects.create_user(address.lower(), None, name=name[:120])
    elif people_of(row.workspace).filter(person=person).exists():
        raise NameTaken(f"{address} is another person of this directory")
    elif not _is_theirs(person, row.workspace):
        raise NameTaken(f"whoever has the account {address} has not proven that it is theirs")
    known = DirectoryPerson.objects.filter(workspace=row.workspace, person=person)
    known.exclude(gone_at=None).delete()
    DirectoryPerson.objects.filter(pk=row.pk).update(person=person)
    row.person = person


def _is_theirs(account: User, workspace: Workspace) -> bool:
    """Whether an account is the person's whom a directory means by its address: it is proven, or
    was let in here by others, or nobody has a way in yet but by the log-in of this workspace. Else
    a stranger may have made it, in another workspace, and waits for what the person is given.
    """
    if independence.is_proven(account):
        return True
    if Team.objects.filter(workspace=workspace, group__user=account).exists():
        return True
    ours = LoginProvider.objects.filter(workspace=workspace).values("provider_id")
    by_others = SocialAccount.objects.filter(user=account).exclude(provider__in=ours)
    return not (by_others.exists() or fresh_login.has_method(account))


def take_out(team: Team, person: User) -> None:
    """The last administrator stays, or nobody could put another one in: the log says so."""
    try:
        teams.remove(team, person, by=None)
    except teams.NobodyLeft:
        logger.exception("%s is the last who may administer %s.", person, team.workspace)


@transaction.atomic
def put_out(workspace: Workspace, person: User) -> None:
    """Out of every team here; tokens and open invitations with them, and, where they stand nowhere
    else, each browser in which they are logged in.
    """
    for team in Team.objects.filter(workspace=workspace, group__user=person):
        take_out(team, person)
    for token in PersonToken.objects.filter(workspace=workspace, person=person, revoked_at=None):
        keys.revoke(token, by=None)
    withdraw_links(Invitation.objects.filter(workspace=workspace), person)
    if not workspaces_of(person).exists():
        teams.end_sessions(person)


def withdraw_links(invitations: QuerySet[Invitation], person: User) -> None:
    """Nobody who left is let in again by a link that was mailed to them before."""
    open_ones = invitations.filter(email__iexact=person.email, accepted_at=None, withdrawn_at=None)
    open_ones.update(withdrawn_at=Now())


def is_out(person: User, workspace: Workspace) -> bool:
    """Whether the directory says that they have left, or said so last where it has no token now:
    between an old one and a new one nobody comes back. That it has ended an administrator says.
    """
    return who_left(workspace).filter(person=person).exists()


def may_speak(workspace: Workspace) -> bool:
    return DirectoryToken.objects.filter(workspace=workspace, revoked_at=None).exists()


@transaction.atomic
def forget(row: DirectoryPerson) -> None:
    """The directory no longer knows them: out, as who left; their account and its acts stay. That
    they left stays known as well, or a group of the company's log-in would put them back.
    """
    if row.person is not None:
        put_out(row.workspace, row.person)
    _leave_groups(row)
    if row.person is None:
        row.delete()
        return
    DirectoryPerson.objects.filter(pk=row.pk).update(
        gone_at=Now(),
        changed_at=Now(),
        active=False,
        user_name=row.scim_id,
        external_id="",
        document={},
    )


def _leave_groups(row: DirectoryPerson) -> None:
    for group in groups_of(row.workspace):
        if row.pk in group.members:
            group.members.remove(row.pk)
            DirectoryGroup.objects.filter(pk=group.pk).update(
                members=group.members, version=F("version") + 1, changed_at=Now()
            )


def may_come_back(workspace: Workspace) -> QuerySet[DirectoryPerson]:
    """Those who left whom the directory does not bring back by itself: it has deleted them, or has
    no token any more.
    """
    rows = who_left(workspace).exclude(person=None)
    return rows.exclude(gone_at=None) if may_speak(workspace) else rows


@transaction.atomic
def let_back_in(rows: QuerySet[DirectoryPerson], *, by: User) -> int:
    """That these left counts no more: groups of the log-in put them into teams. How many they were;
    one whom somebody has let back in meanwhile is none.
    """
    count = 0
    for row in rows.select_related("workspace", "person"):
        if DirectoryPerson.objects.filter(pk=row.pk, active=False).delete()[0]:
            _leave_groups(row)
            data = {"person": row.person.email if row.person else row.user_name}
            outbox.record(row.workspace, EventType.DIRECTORY_PERSON_LET_BACK_IN, by=by, data=data)
            count += 1
    return count


def people_of(workspace: Workspace) -> QuerySet[DirectoryPerson]:
    """Whom the directory knows, the active and those who left."""
    return DirectoryPerson.objects.filter(workspace=workspace, gone_at=None)


def who_left(workspace: Workspace) -> QuerySet[DirectoryPerson]:
    """With those whom the directory has deleted since."""
    return DirectoryPerson.objects.filter(workspace=workspace, active=False)


# Groups.


def groups_of(workspace: Workspace) -> list[DirectoryGroup]:
    rows = DirectoryGroup.objects.filter(workspace=workspace, gone_at=None)
    return list(rows.select_related("team").order_by("pk"))


@transaction.atomic
def new_group(workspace: Workspace, name: str, *, by: DirectoryToken) -> DirectoryGroup:
    """A team of this name, which may nothing until an administrator says so. Raises NameTaken for a
    team that is not the directory's, and DirectoryFull.
    """
    if len(groups_of(workspace)) >= GROUPS_MAX:
        raise DirectoryFull(f"more than {GROUPS_MAX} groups")
    if name in {one.renamed for one in groups_of(workspace)}:
        raise NameTaken(f"there is a group “{name}”")
    team = Team.objects.filter(workspace=workspace, name=name).first()
    if team is None:
        team = teams.create(workspace, name, by=by.created_by, may=())
        return DirectoryGroup.objects.create(workspace=workspace, team=team)
    row = DirectoryGroup.objects.filter(team=team).exclude(gone_at=None).first()
    if row is None:
        raise NameTaken(f"“{name}” is a team here: an administrator can hand it over")
    row.delete()
    return DirectoryGroup.objects.create(workspace=workspace, team=team)


@transaction.atomic
def hand_over(team: Team, *, by: User) -> None:
    """Let the directory say from now on who stands in a team. Who stands in it stays, until the
    directory says otherwise of them.
    """
    DirectoryGroup.objects.filter(team=team).exclude(gone_at=None).delete()
    _, made = DirectoryGroup.objects.get_or_create(
        team=team, defaults={"workspace": team.workspace}
    )
    if made:
        data = {"team": team.name}
        outbox.record(team.workspace, EventType.DIRECTORY_TEAM_HANDED_OVER, by=by, data=data)


@transaction.atomic
def rename(group: DirectoryGroup, name: str) -> None:
    """The team keeps its name here, for rules ask it under that one. Raises NameTaken where another
    team or group is called so.
    """
    others = [one for one in groups_of(group.workspace) if one.pk != group.pk]
    same = Team.objects.filter(workspace=group.workspace, name=name).exclude(pk=group.team_id)
    if same.exists() or name in {one.name for one in others}:
        raise NameTaken(f"there is a team “{name}” here")
    group.renamed = "" if name == group.team.name else name
    DirectoryGroup.objects.filter(pk=group.pk).update(renamed=group.renamed)


@transaction.atomic
def drop_group(group: DirectoryGroup) -> None:
    """Its people are out of the team, which stays for what it was asked."""
    rows = DirectoryPerson.objects.filter(pk__in=group.members).select_related("person")
    for row in rows:
        if row.person and row.person.groups.filter(pk=group.team.group_id).exists():
            take_out(group.team, row.person)
    DirectoryGroup.objects.filter(pk=group.pk).update(gone_at=Now(), members=[])
