"""The cast: Ada proposes, Ben approves; the agent “handy” looks after things in an outside world.

Our models are imported inside the fixtures, for this file is read before Django is set up.
"""

import msgspec
import pytest

from tests import people, worlds
from tests.outside.world import DIST, World
from tests.worlds import kept, quiet

acme = people.acme
kept_world = worlds.kept_world


@pytest.fixture(scope="session", autouse=True)
def installed():
    """The outside world's connector, found like anybody's package."""
    import sys

    from connectors import registry

    sys.path.append(str(DIST))
    registry.forget()
    assert "outside" in registry.names()
    yield
    sys.path.remove(str(DIST))
    registry.forget()


@pytest.fixture(autouse=True)
@quiet
def unhurried(monkeypatch):
    """On a busy machine a thread may start late: the engine would put that step off, rightly, and
    a story that ends with one advance would end too early."""
    monkeypatch.setattr("connectors.call_pool.STALE_SECONDS", 10.0)


@pytest.fixture
def limit(monkeypatch):
    """Give every call to the outside world so many seconds."""
    from dataclasses import replace

    from connectors import registry

    def give(seconds):
        kind = type(registry.get("outside"))
        limited = {
            name: replace(one, limit_seconds=seconds) for name, one in kind.operations.items()
        }
        monkeypatch.setattr(kind, "operations", limited)

    return give


@pytest.fixture(scope="session")
@quiet
def service(tmp_path_factory):
    running = World(tmp_path_factory.mktemp("outside"))
    yield running
    running.stop()


@pytest.fixture
@quiet
def outside(service):
    """The outside world; each test has it alone, and sees only what came since its start."""
    service.fresh()
    return service


@pytest.fixture
@kept
def handy(acme):
    from workspaces.models import Agent

    return Agent.objects.create(workspace=acme, name="handy")


@pytest.fixture
@kept
def ada(acme):
    from tests.people import person
    from workspaces import teams

    return person("ada", teams.create(acme, "operators", by=None, may=["view", "recover"]))


@pytest.fixture
@kept
def ben(acme):
    from tests.people import person
    from workspaces import teams

    return person("ben", teams.create(acme, "approvers", by=None, may=["view", "approve"]))


@pytest.fixture
@quiet
def reachable(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]


@pytest.fixture
@kept
def world(acme, ada, outside, reachable):
    """The connection of Acme to the outside world."""
    from connectors import connections

    return connections.create(acme, "world", "outside", {"url": outside.url}, by=ada)


class Login(msgspec.Struct, forbid_unknown_fields=True):
    user: str
    password: str


@pytest.fixture
def logged_in(world, ada, monkeypatch):
    """The world asks for a log-in; this lets the connection have one, for one purpose or both."""
    from connectors import connections, registry

    kind = type(registry.get("outside"))
    monkeypatch.setattr(kind, "credential_schema", Login)
    monkeypatch.setattr(kind, "account", lambda *given: given[-1].user)

    def enter(user, password="p", purposes=connections.PURPOSES):
        world.refresh_from_db()
        login = {"user": user, "password": password}
        for purpose in purposes:
            connections.set_secret(world, purpose, login, by=ada)

    enter("mia")
    return enter


@pytest.fixture
@quiet
def three_left(outside):
    """The outside world as an agent left it."""
    outside.seed({name: {"v": 2} for name in "abc"})


@pytest.fixture
@kept(in_turn=True)
def case(handy, three_left):
    """A run that changed three things, each once, and broke. Newest: “c”."""
    from tests.recovery.engine import desk

    changes = {name: ({"v": 1}, {"v": 2}) for name in "abc"}
    return desk.case_of(desk.run_that(handy, "run_1", changes))


@pytest.fixture
@quiet
def one_left(outside):
    outside.seed({"a": {"v": 2}})


@pytest.fixture
@kept(in_turn=True)
def one_thing(handy, one_left):
    """A run that changed one thing, “a”, from 1 to 2."""
    from tests.recovery.engine.desk import case_of, run_that

    return case_of(run_that(handy, "run_1", {"a": ({"v": 1}, {"v": 2})}))
