"""The airline desk: web, worker, scheduler and sweeper over this test's own database."""

import os
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from tests.browser import conftest as seen

browser = seen.browser


@pytest.fixture
def outside():
    """The airline's database, on the same server and of nobody else."""
    own = os.environ["DATABASE_URL"]
    name = f"airline_{os.getpid()}"
    with psycopg.connect(own, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
    yield own.replace(urlsplit(own).path, f"/{name}", 1)
    with psycopg.connect(own, autocommit=True) as server:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def ada(transactional_db):
    """Ada, who set the desk up and recovers."""
    from workspaces.models import User

    return User.objects.create_user("ada@example.com", "a long enough secret", name="Ada")


@pytest.fixture
def airline(ada):
    from tests.airline import desk
    from workspaces import entrance

    if not desk.CORPUS.exists():
        pytest.skip(f"the recorded runs are not at {desk.CORPUS}")
    return entrance.open_workspace("Airline desk", "airline", by=ada)


@pytest.fixture
def airline_desk(processes, outside, airline, ada):
    """Everything runs; `http` speaks with Ada's token."""
    from tests.airline import desk
    from workspaces import keys

    _, token = keys.create_token(airline, by=ada, name="script")
    allowed = desk.environment(outside, processes.folder)
    web = processes.web(**allowed)
    processes.worker(**allowed)
    processes.scheduler(**allowed)
    processes.sweeper(**allowed)
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=web.url, headers=headers, timeout=60, trust_env=False) as http:
        yield desk.AirlineDesk(web=web, outside=outside, http=http)


@pytest.fixture
def approvers(airline):
    """Ben of finance and Cleo of the leads, whom the stricter policy asks."""
    from workspaces import independence, teams
    from workspaces.models import User

    found = {}
    for name, team in (("ben", "finance"), ("cleo", "airline-leads")):
        person = User.objects.create_user(f"{name}@example.com", "a long enough secret", name=name)
        standing = teams.create(airline, team, by=None, may=["view", "view_sensitive", "approve"])
        teams.add(standing, person, by=None)
        independence.prove(person)
        found[name] = person
    return found
