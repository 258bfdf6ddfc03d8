"""The people of the stories: Ada recovers, Ben and Cleo approve, Dev is from elsewhere.

Fixtures for a conftest to take by name (`acme, ada = people.acme, people.ada`); what differs there
it defines itself. Our models are imported inside, for conftests are read before Django is set up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import transaction

from tests.worlds import kept

if TYPE_CHECKING:
    from django.test import Client

    from workspaces.access import Codename
    from workspaces.models import Team, User, Workspace


@transaction.atomic
def person(name: str, *standing: Team) -> User:
    """Somebody who is a member of these teams, and whose address is proven.

    `teams.add` writes the same rows in twice as many statements, for which nearly every story would
    wait; `workspaces/test_access.py` holds the two against each other.
    """
    from allauth.account.models import EmailAddress

    from amends.protocol.vocabulary import EventType
    from workspaces import outbox
    from workspaces.models import Membership, User

    found = User.objects.create_user(f"{name}@example.com", "correct horse", name=name.title())
    EmailAddress.objects.create(user=found, email=found.email, primary=True, verified=True)
    for team in standing:
        found.groups.add(team.group_id)
        Membership.objects.create(workspace=team.workspace, team=team, person=found)
        told = {"team": team.name, "person": found.email}
        outbox.record(team.workspace, EventType.MEMBER_ADDED, by=None, data=told)
    return found


def logged_in(who: User) -> Client:
    """A browser without scripts in which this person is logged in."""
    from django.test import Client

    browser = Client()
    browser.force_login(who)
    return browser


def team(workspace: Workspace, name: str, *may: Codename) -> Team:
    from workspaces import teams

    return teams.create(workspace, name, by=None, may=list(may))


@pytest.fixture
@kept
def acme(db: Any) -> Workspace:
    from workspaces.models import Workspace

    return Workspace.objects.create(slug="acme", name="Acme")


@pytest.fixture
@kept
def globex(db: Any) -> Workspace:
    from workspaces.models import Workspace

    return Workspace.objects.create(slug="globex", name="Globex")


@pytest.fixture
@kept
def operators(acme: Workspace) -> Team:
    return team(acme, "operators", "view", "recover")


@pytest.fixture
@kept
def leads(acme: Workspace) -> Team:
    return team(acme, "leads", "view", "approve")


@pytest.fixture
@kept
def ada(operators: Team) -> User:
    return person("ada", operators)


@pytest.fixture
@kept
def finn(operators: Team) -> User:
    return person("finn", operators)


@pytest.fixture
@kept
def ben(leads: Team) -> User:
    return person("ben", leads)


@pytest.fixture
@kept
def cleo(leads: Team) -> User:
    return person("cleo", leads)


@pytest.fixture
@kept
def dev(globex: Workspace) -> User:
    return person("dev", team(globex, "all", "view", "recover", "approve"))
