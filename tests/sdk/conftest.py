"""A small desk with a journal, and clients of it."""

import json
import os
import signal
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path

import httpx
import pytest

import amends
from tests import servers
from tests.ports import free_port

HERE = Path(__file__).parent
KEY = "amends_0123456789_a-secret"
OLD, NEW = {"flight": "HAT001"}, {"flight": "HAT019"}
# What a process needs that a test starts: the client is not installed, it lies beside.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(HERE.parents[1] / "sdk")}


# An agent of its own process. It notes what it did outside, and may kill itself at a named place.
AGENT = """
import os, signal, sys, amends
url, key, spool, outside, die = sys.argv[1:]
def point(name):
    if name == die: os.kill(os.getpid(), signal.SIGKILL)
def update():
    with open(outside, "a") as journal: journal.write("moved\\n")
    point("done")
    return {"flight": "HAT019"}
desk = amends.connect(url, key, spool=spool, workspace="northwind")
with desk.run("Move it", run="run_crash") as run:
    try:
        with run.action("update_flight", target=("reservation", "XEHM4B"), args={},
                        effect_class="internal_update") as act:
            point("begun")
            act.perform(update)
            act.succeeded({"flight": "HAT019"}, after={"flight": "HAT019"})
            point("said")
        print("replayed" if act.replayed else "ran")
    except amends.AmendsError as stopped:
        print(type(stopped).__name__)
desk.close(seconds=30)
"""


def act_and_die(url, key, spool, outside, die="nowhere"):
    """Run that agent; gives what it printed, or `killed`."""
    done = subprocess.run(
        [sys.executable, "-c", AGENT, url, key, *map(str, (spool, outside, die))],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return "killed" if done.returncode == -signal.SIGKILL else done.stdout.strip() or done.stderr


def move(run, **more):
    usual = {"target": ("reservation", "XEHM4B"), "args": {"flight": "HAT019"}, "before": OLD}
    return run.action("update_flight", **(usual | more))


class SmallDesks:
    """Starts and kills desks, each in a process of its own (desk_server.py)."""

    def __init__(self):
        self._asking = threading.Lock()
        self._server = subprocess.Popen(
            [sys.executable, HERE / "desk_server.py"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        servers.at_the_end(self._end)

    def ask(self, **what):
        with self._asking:
            self._server.stdin.write(json.dumps(what) + "\n")
            self._server.stdin.flush()
            return json.loads(self._server.stdout.readline())

    def _end(self):
        self._server.communicate(timeout=60)


small_desks = cache(SmallDesks)


class SmallDesk:
    """A desk in its own process; it can be stopped, and started again with an empty memory."""

    def __init__(self, folder):
        self.journal_file = folder / "desk.journal"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.pid = None

    def start(self, **settings):
        """What it minds holds from its first request on: an agent may be waiting for it."""
        asked = {"port": self.port, "journal": str(self.journal_file), "control": settings}
        self.pid = small_desks().ask(**asked)["pid"]
        return self.control()

    def stop(self):
        if self.pid:
            small_desks().ask(end=self.pid)
            self.pid = None

    def control(self, **settings):
        return httpx.post(f"{self.url}/control", json=settings, timeout=30).json()

    def journal(self, kind="event"):
        if not self.journal_file.exists():
            return []
        # The last line may still be on its way: a long one is written in parts.
        whole, _, _ = self.journal_file.read_text().rpartition("\n")
        lines = [json.loads(line) for line in whole.splitlines()]
        return [what for which, what in lines if which == kind]

    def types(self):
        return [event["type"] for event in self.journal()]


@pytest.fixture
def small_desk(tmp_path):
    desk = SmallDesk(tmp_path)
    desk.start()
    yield desk
    desk.stop()


@pytest.fixture
def spool_file(tmp_path):
    return tmp_path / "agent" / "spool.sqlite"


@pytest.fixture
def desk(small_desk, spool_file):
    """The agent's side."""
    desk = amends.connect(small_desk.url, KEY, spool=spool_file, wait_seconds=5)
    yield desk
    desk.close(seconds=0.2)


@pytest.fixture
def northwind(transactional_db):
    from workspaces.models import Workspace

    return Workspace.objects.create(slug="northwind", name="Northwind")


@pytest.fixture
def token(northwind):
    from workspaces import keys
    from workspaces.models import Agent, User

    ada = User.objects.create_user("ada@northwind.example", name="Ada")
    agent = Agent.objects.create(workspace=northwind, name="trip-desk", owner=ada)
    return keys.create_key(agent, by=ada, name="test")[1]


@pytest.fixture
def web(processes, token):
    return processes.kept_web()


@pytest.fixture
def real_desk(web, token, spool_file):
    desk = amends.connect(web.url, token, spool=spool_file, wait_seconds=20)
    yield desk
    desk.close(seconds=1)
