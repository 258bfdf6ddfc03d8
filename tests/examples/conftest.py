"""Skyline Airways: the demo's own outside world, people and stories, on this test's database."""

import os
import sys
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from demo.places import Places
from tests.browser import conftest as seen
from tests.ports import free_ports
from tests.processes import answers

browser = seen.browser
pytest_runtest_makereport = seen.pytest_runtest_makereport
PORTS = 5


@pytest.fixture
def surroundings(transactional_db, tmp_path, monkeypatch):
    """Where the outside world is, in the environment of this process and of all it starts."""
    own = os.environ["DATABASE_URL"]
    name = f"skyline_{os.getpid()}"
    with psycopg.connect(own, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
    outside = own.replace(urlsplit(own).path, f"/{name}", 1)
    sockets = psycopg.conninfo.conninfo_to_dict(outside)["host"]
    monkeypatch.setenv("DEMO_DATABASE_URL", outside)
    monkeypatch.setenv("DEMO_HOME", str(tmp_path / "demo"))
    monkeypatch.setenv("DEMO_PORT", str(first := free_ports(PORTS)))
    monkeypatch.setenv("EMAIL_HOST", "127.0.0.1")
    monkeypatch.setenv("EMAIL_PORT", str(Places(first).smtp_port))
    monkeypatch.setenv("AMENDS_OUTBOUND_ALLOW", f"127.0.0.1,localhost,{sockets}")
    yield outside
    with psycopg.connect(own, autocommit=True) as server:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def skyline(surroundings, processes, settings, monkeypatch):
    """The demo as `make up` runs it, but for its agents: those play what a test asks of them."""
    from demo import places
    from demo.setting import skyline as setting
    from tests.examples.desk import Skyline

    settings.OUTBOUND_ALLOW = os.environ["AMENDS_OUTBOUND_ALLOW"].split(",")
    setting.make_tables()
    setting.prepare()
    world = processes.run("world", [sys.executable, "-m", "demo.world"], PYTHONPATH=seen_paths())
    with processes.side_by_side():
        web = processes.web()
        monkeypatch.setenv("AMENDS_URL", web.url)
        for start in (processes.worker, processes.scheduler, processes.sweeper):
            start()
    world.wait_until(lambda: answers(f"{places.places().mailbox}/journal"))
    return Skyline(web.url, surroundings)


def seen_paths() -> str:
    from config.local.places import ROOT

    return os.pathsep.join([str(ROOT), str(ROOT / "sdk")])


@pytest.fixture
def at_the_desk(skyline, browser, request):
    """A page of somebody of Skyline, just logged in: `at_the_desk("rina")`; without, of anybody."""
    from workspaces.models import User

    contexts: list[Any] = []
    wrong: list[str] = []

    def sits(name="", **options):
        where = {"base_url": skyline.url, "viewport": seen.DESKTOP}
        context = browser.new_context(**where | options)
        context.set_default_timeout(seen.WAIT_MILLISECONDS)
        if name:
            person = User.objects.get(email__startswith=f"{name}@")
            context.add_cookies([seen.session_of(person, skyline.url)])
        contexts.append(context)
        page = context.new_page()
        seen.slow_down(page)
        seen.listen(page, wrong)
        return page

    yield sits
    if request.node.stash.get(seen.FAILED, False):
        seen.keep_pictures(contexts, request.node.nodeid)
    for context in contexts:
        context.close()
    assert not wrong, "\n".join(wrong)
