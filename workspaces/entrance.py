"""How a person gets in: the set-up link, and invitations. Only digests of links are kept."""

import secrets
from collections.abc import Iterable
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.dispatch import Signal

from amends.protocol.vocabulary import EventType
from workspaces import clock, independence, outbox, teams
from workspaces.access import Codename, may
from workspaces.keys import link_digest
from workspaces.models import Invitation, SetupLink, Team, User, Workspace

SETUP_LINK_HOURS = 24
INVITATION_DAYS = 7
OPEN_INVITATIONS_MAX = 200

STARTERS = {
    "quick-start": "The tools of the quick start may act; people are asked of every other one",
    "ask-all": "People are asked of every tool until the policy lists it",
}
"""The policies that a new workspace may start with; approvals/versions.py has their text."""

workspace_set_up = Signal()
"""Sent in the transaction with `workspace`, `by` and `starter`: the floor that knows of policies
puts the first one in force, or there is no workspace."""

FIRST_TEAMS: dict[str, tuple[Codename, ...]] = {
    "administrators": ("view", "view_sensitive", "administer", "edit_lists"),
    "operators": ("view", "view_sensitive", "recover"),
    "approvers": ("view", "view_sensitive", "approve"),
    "viewers": ("view",),
}
SEES: frozenset[Codename] = frozenset({"view", "view_sensitive"})
"""A team that may do no more than that decides nothing; the founder need not join it."""


class LinkIsOver(Exception):
    """We stopped because the link was used, withdrawn, or is too old: ask for a new one."""


class LimitReached(Exception):
    """We stopped because a limit was reached; the message names it."""


def needs_setup() -> bool:
    """Whether nobody can administer anything yet."""
    return not Workspace.objects.exists()


def setup_link() -> str:
    """Make the token of `/setup/<token>/`; it works once and for a day."""
    token = secrets.token_urlsafe(32)
    SetupLink.objects.create(
        digest=link_digest(token), expires_at=clock.now() + timedelta(hours=SETUP_LINK_HOURS)
    )
    return token


def standing_setup_link(token: str) -> SetupLink | None:
    return SetupLink.objects.filter(
        digest=link_digest(token), used_at=None, expires_at__gt=Now()
    ).first()


@transaction.atomic
def open_workspace(
    name: str, slug: str, *, by: User, starter: str = next(iter(STARTERS))
) -> Workspace:
    """Make a workspace with its first teams and policy, one of STARTERS; `by` administers, operates
    and may approve.
    """
    workspace = Workspace.objects.create(name=name, slug=slug, founder=by)
    for team_name, codenames in FIRST_TEAMS.items():
        team = teams.create(workspace, team_name, by=by, may=codenames)
        if set(codenames) - SEES:
            teams.add(team, by, by=by)
    workspace_set_up.send(None, workspace=workspace, by=by, starter=starter)
    return workspace


@transaction.atomic
def set_up(
    token: str,
    *,
    name: str,
    email: str,
    password: str,
    workspace_name: str,
    slug: str,
    starter: str = "quick-start",
) -> tuple[User, Workspace]:
    """Make the first administrator and workspace, with one of STARTERS as its policy.

    Raises `LinkIsOver` for a used or old link.
    """
    used = SetupLink.objects.filter(
        digest=link_digest(token), used_at=None, expires_at__gt=Now()
    ).update(used_at=Now())
    if not used:
        raise LinkIsOver("This set-up link was used or is more than a day old.")
    person = User.objects.create_user(email=email, password=password, name=name)
    # Whoever has the link has the server; a founder's word for their address is the server's.
    independence.prove(person)
    return person, open_workspace(workspace_name, slug, by=person, starter=starter)


@transaction.atomic
def invite(workspace: Workspace, email: str, into: Iterable[Team], *, by: User) -> str:
    """Make the token of `/join/<token>/` for one address; an older open one is withdrawn."""
    standing = Invitation.objects.filter(workspace=workspace, accepted_at=None, withdrawn_at=None)
    if standing.filter(expires_at__gt=Now()).count() >= OPEN_INVITATIONS_MAX:
        raise LimitReached(
            f"There are {OPEN_INVITATIONS_MAX} open invitations; withdraw some first."
        )
    standing.filter(email__iexact=email).update(withdrawn_at=Now())
    token = secrets.token_urlsafe(32)
    invitation = Invitation.objects.create(
        workspace=workspace,
        email=email.lower(),
        digest=link_digest(token),
        invited_by=by,
        expires_at=clock.now() + timedelta(days=INVITATION_DAYS),
    )
    chosen = [team for team in into if team.workspace_id == workspace.pk]
    invitation.teams.set(chosen)
    outbox.record(
        workspace,
        EventType.MEMBER_INVITED,
        by=by,
        data={"email": email.lower(), "teams": [team.name for team in chosen]},
    )
    return token


def standing_invitation(token: str) -> Invitation | None:
    """Nobody comes in by the word of somebody who could not let them in any more."""
    found = (
        Invitation.objects.select_related("workspace", "invited_by")
        .filter(Q(digest=link_digest(token)), accepted_at=None, withdrawn_at=None)
        .filter(expires_at__gt=Now())
        .first()
    )
    inviter = found.invited_by if found else None
    if found is None or (inviter and not may(inviter, "administer", found.workspace)):
        return None
    return found


@transaction.atomic
def accept(token: str, *, by: User) -> Workspace:
    """Put the person into the invitation's teams. The address must be the one that was invited."""
    invitation = standing_invitation(token)
    if invitation is None or invitation.email != by.email:
        raise LinkIsOver(
            "This invitation was used, withdrawn, is too old, or is for another address."
        )
    standing = Invitation.objects.filter(pk=invitation.pk, accepted_at=None, withdrawn_at=None)
    if not standing.update(accepted_at=Now()):
        raise LinkIsOver("This invitation was used or withdrawn a moment ago.")
    for team in invitation.teams.all():
        teams.add(team, by, by=invitation.invited_by)
    return invitation.workspace


def needs_password(person: User, workspace: Workspace) -> bool:
    """Another company's log-in opens nothing any more once they are here: they would be shut out of
    both, and only who is let in by the one and was given the link of the other may open both.
    """
    if settings.OIDC_URL or person.has_usable_password():
        return False
    return teams.is_opened_by_another_company(person, workspace)


def joins_with(token: str, person: User) -> Workspace | None:
    """The workspace into which this very person is invited by the link, or is once more."""
    invitation = standing_invitation(token)
    return invitation.workspace if invitation and invitation.email == person.email else None


@transaction.atomic
def accept_with(token: str, *, by: User, password: str) -> Workspace:
    """Accept, and be let in by a password from now on. Raises `LinkIsOver`."""
    workspace = accept(token, by=by)
    by.set_password(password)
    by.save(update_fields=["password"])
    return workspace


@transaction.atomic
def withdraw(invitation: Invitation, *, by: User) -> None:
    moved = Invitation.objects.filter(pk=invitation.pk, accepted_at=None, withdrawn_at=None).update(
        withdrawn_at=Now()
    )
    if moved:
        outbox.record(
            invitation.workspace,
            EventType.INVITATION_WITHDRAWN,
            by=by,
            data={"email": invitation.email},
        )
