"""The cast: Ada proposes, Ben and Cleo approve, Dev is from another workspace.

Our models are imported inside the fixtures, for this file is read before Django is set up.
"""

import pytest

from tests import people, worlds
from tests.connectors import conftest as outside
from tests.worlds import kept, quiet

acme, globex, leads = people.acme, people.globex, people.leads
ada, cleo, dev = people.ada, people.cleo, people.dev
outsides = outside.outsides
kept_world = worlds.kept_world


@pytest.fixture
@kept
def operators(acme):
    return people.team(acme, "operators", "view", "recover", "administer")


@pytest.fixture
@kept
def finance(acme):
    return people.team(acme, "finance", "view", "approve")


@pytest.fixture
@kept
def ben(finance):
    return people.person("ben", finance)


@pytest.fixture
@kept
def agent(acme):
    from workspaces.models import Agent

    return Agent.objects.create(workspace=acme, name="desk-agent")


@pytest.fixture
@kept
def key(agent):
    from workspaces import keys

    return keys.create_key(agent, by=None, name="test")[1]


@pytest.fixture
@kept
def trip(key, ben):
    """The agent at the gate; Ben may decide what it asks for."""
    from tests.approvals.door import Agent

    return Agent(key)


@pytest.fixture
@quiet
def ask(acme, ada, finance, leads):
    from tests.approvals.cast import asker

    return asker(acme, ada)


@pytest.fixture
def post_office(outsides, settings):
    """A real mail server; the letters that arrived since, on `letters()`."""
    from connectors import channels

    box = outsides("mail")
    settings.EMAIL_BACKEND = channels.SMTP
    settings.AMENDS_SENDS_MAIL = True
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", box.at["port"]
    settings.EMAIL_USE_TLS = False
    before = len(box.journal.entries())
    return lambda: box.journal.entries()[before:]
