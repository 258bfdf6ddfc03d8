"""A recorded desk: web, worker, scheduler and sweeper over this test's own database.

Every story is told of both recordings: of the invented parcel desk, and of the airline where its
recording is.
"""

import os
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from demo.parcels import generate
from tests.browser import conftest as seen

browser = seen.browser


@pytest.fixture
def outside():
    """The business's database, on the same server and of nobody else."""
    own = os.environ["DATABASE_URL"]
    name = f"business_{os.getpid()}"
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


@pytest.fixture(params=["parcels", "airline"])
def recording(request, tmp_path):
    """The folder with the recorded runs."""
    from tests.recorded import desk

    if request.param == "airline":
        if not desk.AIRLINE.exists():
            pytest.skip(f"the recorded runs are not at {desk.AIRLINE}")
        return desk.AIRLINE
    generate.write(tmp_path)
    return tmp_path


@pytest.fixture
def workspace(ada, recording):
    from demo import corpus
    from workspaces import entrance

    desk = corpus.load(recording, limit=1).desk
    return entrance.open_workspace(desk.name, desk.slug, by=ada)


@pytest.fixture
def recorded_desk(processes, outside, workspace, recording, ada):
    """Everything runs; `http` speaks with Ada's token."""
    from tests.recorded import desk
    from workspaces import keys

    _, token = keys.create_token(workspace, by=ada, name="script")
    allowed = desk.environment(outside, processes.folder)
    with processes.side_by_side():
        web = processes.web(**allowed)
        processes.worker(**allowed)
        processes.scheduler(**allowed)
        processes.sweeper(**allowed)
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=web.url, headers=headers, timeout=60, trust_env=False) as http:
        yield desk.RecordedDesk(
            web=web, outside=outside, http=http, slug=workspace.slug, recording=recording
        )


@pytest.fixture
def approvers(workspace):
    """Ben of finance and Cleo of the leads, whom the stricter policy asks."""
    from workspaces import independence, teams
    from workspaces.models import User

    found = {}
    for name, team in (("ben", "finance"), ("cleo", f"{workspace.slug}-leads")):
        person = User.objects.create_user(f"{name}@example.com", "a long enough secret", name=name)
        standing = teams.create(workspace, team, by=None, may=["view", "view_sensitive", "approve"])
        teams.add(standing, person, by=None)
        independence.prove(person)
        found[name] = person
    return found
