"""The cast: Ada proposes, Ben and Cleo approve, Dev is from another workspace.

Our models are imported inside the fixtures, for this file is read before Django is set up.
"""

import pytest


@pytest.fixture
def acme(db):
    from workspaces.models import Workspace

    return Workspace.objects.create(slug="acme", name="Acme")


@pytest.fixture
def globex(db):
    from workspaces.models import Workspace

    return Workspace.objects.create(slug="globex", name="Globex")


@pytest.fixture
def operators(acme):
    from workspaces import teams

    return teams.create(acme, "operators", by=None, may=["view", "recover", "administer"])


@pytest.fixture
def finance(acme):
    from workspaces import teams

    return teams.create(acme, "finance", by=None, may=["view", "approve"])


@pytest.fixture
def leads(acme):
    from workspaces import teams

    return teams.create(acme, "leads", by=None, may=["view", "approve"])


@pytest.fixture
def ada(operators):
    from tests.approvals.cast import person

    return person("ada", operators)


@pytest.fixture
def ben(finance):
    from tests.approvals.cast import person

    return person("ben", finance)


@pytest.fixture
def cleo(leads):
    from tests.approvals.cast import person

    return person("cleo", leads)


@pytest.fixture
def dev(globex):
    from tests.approvals.cast import person
    from workspaces import teams

    return person("dev", teams.create(globex, "all", by=None, may=["view", "recover", "approve"]))


@pytest.fixture
def agent(acme):
    from workspaces.models import Agent

    return Agent.objects.create(workspace=acme, name="desk-agent")


@pytest.fixture
def key(agent):
    from workspaces import keys

    return keys.create_key(agent, by=None, name="test")[1]


@pytest.fixture
def ask(acme, ada, finance, leads):
    from tests.approvals.cast import asker

    return asker(acme, ada)


@pytest.fixture(scope="session")
def outsides(tmp_path_factory):
    """Starts an outside program at its first use, and stops them all at the end."""
    from tests.connectors.outside import Outside

    running = {}

    def get(name):
        if name not in running:
            running[name] = Outside(name, tmp_path_factory.mktemp(name))
        return running[name]

    yield get
    for one in running.values():
        one.stop()


@pytest.fixture
def post_office(outsides, settings):
    """A real mail server; the letters that arrived since, on `letters()`."""
    box = outsides("mail")
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", box.at["port"]
    settings.EMAIL_USE_TLS = False
    before = len(box.journal.entries())
    return lambda: box.journal.entries()[before:]
