"""Three machines behind HAProxy and PgBouncer, as docs/running.md has it, while things break.

Agents call, a person decides, plans are carried out, all the while. One machine is cut off and
comes back, one dies and comes back with an older version, and at last the database's primary dies
and its synchronous standby takes over.
"""

import csv
import shutil
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from django.db import DatabaseError, connections

import amends
from approvals.models import Approval
from config.local.places import ROOT
from connectors import connections as outside_connections
from ledger.models import Action
from tests import pooler as poolers
from tests.approvals.cast import put_in_force
from tests.conftest import started
from tests.crash import machines as network
from tests.crash.machines import HOST, Machine
from tests.crash.oracle import until
from tests.crash.person import Person
from tests.crash.rabbitmq import RABBITMQ, rabbitmq
from tests.crash.standby import Standby, ask
from tests.crash.versions import OLD_BEHIND_A_POOLER, of_old, old_code
from tests.ports import free_port
from tests.processes import Processes
from tests.proxy import Proxy
from workspaces import keys
from workspaces.models import Agent

pooler, named_pooler = poolers.pooler, poolers.named_pooler
HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.earnest,
    pytest.mark.timeout(900),
    poolers.needed,
    network.needed,
    pytest.mark.skipif(HAPROXY is None, reason="HAProxy is not installed (Debian: haproxy)"),
]
AGENTS = 6
CUT_SECONDS = 25
CALM_SECONDS = 8
WAIT_SECONDS_MAX = 120
"""So long an agent holds on to one call before it says that the desk cannot be reached."""


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    return environment | {"AMENDS_OUTBOUND_ALLOW": HOST}


@pytest.fixture
def hosts() -> Iterator[list[Machine]]:
    """Three machines with nothing on them yet."""
    with tempfile.TemporaryDirectory() as folder, network.machines(Path(folder), 3) as made:
        yield made


@pytest.fixture
def world(acme: Any, ada: Any, outside: Any, settings: Any, hosts: list[Machine]) -> Iterator[Any]:
    """The outside system, as the machines reach it."""
    settings.OUTBOUND_ALLOW = [HOST]
    with Proxy(("127.0.0.1", outside.port), at=HOST) as way:
        url = f"http://{HOST}:{way.port}"
        yield outside_connections.create(acme, "world", "outside", {"url": url}, by=ada)


class Balancer(NamedTuple):
    """HAProxy: where agents and people find the desk, and what it says of the webs."""

    url: str
    admin: Path

    def up(self) -> set[str]:
        """The webs to which it sends requests at present."""
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(self.admin))
            line.sendall(b"show stat\n")
            said = b"".join(iter(lambda: line.recv(65_536), b"")).decode()
        rows = csv.DictReader(said.removeprefix("# ").splitlines())
        return {row["svname"] for row in rows if row["status"].startswith("UP")} - {"BACKEND"}


def balancer(processes: Processes, folder: Path, port: int, webs: list[str]) -> Balancer:
    """deploy/proxy/haproxy.cfg, with other addresses and without TLS."""
    admin = folder / "haproxy.sock"
    ours = (ROOT / "deploy" / "proxy" / "haproxy.cfg").read_text()
    for written, here in (
        ("/run/haproxy/admin.sock", str(admin)),
        ("bind :443 ssl crt /etc/ssl/desk.example.com/both.pem", f"bind 127.0.0.1:{port}"),
        ("hdr Host desk.example.com", f"hdr Host 127.0.0.1:{port}"),
        *((f"web{n}.internal:8000", web) for n, web in enumerate(webs, 1)),
    ):
        assert written in ours
        ours = ours.replace(written, here)
    config = folder / "haproxy.cfg"
    config.write_text(ours)
    running = processes.run("haproxy", [str(HAPROXY), "-db", "-f", str(config)])
    running.wait_until(admin.exists)
    return Balancer(f"http://127.0.0.1:{port}", admin)


class Calls:
    """Agents that go on calling until they are told to stop, each call with a key of its own."""

    def __init__(self, url: str, token: str, folder: Path) -> None:
        self.url, self.token, self.folder = url, token, folder
        self.made: Counter[str] = Counter()
        self.longest: dict[str, float] = {}
        self.phase = "before"
        self.over = threading.Event()

    def agent(self, number: int) -> None:
        spool = self.folder / f"agent-{number}.sqlite"
        desk = amends.connect(self.url, self.token, spool=spool, wait_seconds=WAIT_SECONDS_MAX)
        with desk.run("Note it", run=f"run_agent_{number}") as run:
            call = 0
            while not self.over.is_set():
                call += 1
                tool = "pay.refund" if call % 8 == 0 else "note.write"
                self._call(run, tool, f"{number}-{call}")
                time.sleep(0.2)
        assert desk.flush(WAIT_SECONDS_MAX)
        desk.close(seconds=WAIT_SECONDS_MAX)

    def _call(self, run: Any, tool: str, name: str) -> None:
        began, phase = time.monotonic(), self.phase
        effect = "external_irreversible" if tool == "pay.refund" else "internal_update"
        with run.action(tool, target=("note", name), effect_class=effect) as act:
            self.made[name] += 1  # what its tool does outside
            act.succeeded(result={"name": name})
        took = time.monotonic() - began
        self.longest[phase] = max(self.longest.get(phase, 0.0), took)


def decides(person: Person, over: threading.Event) -> int:
    """Somebody who says yes to whatever is asked; how often."""
    count = 0
    while not over.is_set():
        with suppress(OSError, DatabaseError):
            for approval in Approval.objects.filter(state="waiting"):
                form = {"decision": "grant", "digest": approval.digest, "reason": "checked"}
                count += person.decides(approval, **form) == 200
        connections.close_all()
        time.sleep(0.3)
    connections.close_all()
    return count


@pytest.mark.parametrize(
    "broker",
    [
        "valkey",
        pytest.param(
            "rabbitmq",
            marks=pytest.mark.skipif(
                RABBITMQ is None, reason="RabbitMQ is not installed (Debian: rabbitmq-server)"
            ),
        ),
    ],
)
def test_machines_fail_one_after_the_other_and_nothing_is_lost_or_done_twice(
    broker: str, storm: Any, hosts: list[Machine], named_pooler: Callable[..., dict[str, str]],
    acme: Any, ada: Any, ben: Any, tmp_path: Path, drilled: Callable[..., None],
) -> None:  # fmt: skip
    put_in_force(acme, ada, POLICY)
    agent = Agent.objects.create(workspace=acme, name="trip-agent", owner=ada)
    _, token = keys.create_key(agent, by=None, name="test")
    front = free_port()
    with ExitStack() as stack:
        environment = storm.environment | named_pooler(also_at=HOST)
        environment |= reachable(stack, storm.processes, broker)
        environment |= {"AMENDS_URL": f"http://127.0.0.1:{front}", "AMENDS_TRUST_PROXY": "1"}
        environment |= {"FORWARDED_ALLOW_IPS": HOST}
        for host in hosts:
            begin(host, environment)
        webs = balancer(storm.processes, tmp_path, front, [f"{one.host}:8000" for one in hosts])
        until(lambda: len(webs.up()) == len(hosts), 60, "HAProxy sends to all three")
        calls = Calls(webs.url, token, tmp_path)
        said = stack.enter_context(asked_of(hosts, calls))
        threads = stack.enter_context(ThreadPoolExecutor(AGENTS + 1))
        stack.callback(calls.over.set)
        agents = [threads.submit(calls.agent, number) for number in range(AGENTS)]
        nobody_asks = threading.Event()
        stack.callback(nobody_asks.set)
        deciding = threads.submit(decides, Person(ben, webs.url, acme), nobody_asks)

        until(lambda: len(calls.made) > 20, 60, "agents call")
        more_plans(storm)
        one_is_cut_off(hosts[1], webs, calls)
        more_plans(storm)
        one_dies_and_comes_back_older(hosts[2], webs, calls, environment, tmp_path)
        more_plans(storm)
        the_primary_dies(storm, webs, calls, len(hosts), broker)

        calls.phase = "afterwards"
        time.sleep(CALM_SECONDS)
        calls.over.set()
        for one in agents:
            one.result(timeout=WAIT_SECONDS_MAX)
        nobody_asks.set()
        approved = deciding.result(timeout=60)
        assert storm.end() == []

    assert set(calls.made.values()) == {1}, "no call was made twice"
    known = Action.objects.filter(tool__in=["note.write", "pay.refund"])
    assert known.filter(state="succeeded").count() == known.count() == len(calls.made)
    assert approved > 0
    assert {status for phase, status in said[hosts[0].name] if phase in CALM} == {200}
    drilled(
        f"three machines behind HAProxy and PgBouncer, {broker} as broker",
        calls=len(calls.made), approvals=approved, effects=len(storm.outside.journal()),
        lost=0, twice=0, longest=f"{max(calls.longest.values()):.1f} s",
    )  # fmt: skip


POLICY = {
    "policies": {
        "pay.*": [{"approval": "MANUAL"}],
        "note.*": [{"approval": "AUTO"}],
    }
}
CALM = ("before", "one is cut off", "one died", "one is older")
"""While these last, the first machine has everything that it needs."""


def begin(host: Machine, environment: dict[str, str], **version: Any) -> None:
    """One of everything: what goes on by itself needs no leader."""
    with host.side_by_side():
        host.web(**environment | version)
        host.worker(**environment | version)
        host.sweeper(**environment | version)
        if not version:
            host.scheduler(**environment)


def reachable(stack: ExitStack, processes: Processes, broker: str) -> dict[str, str]:
    """The servers of this machine, as the others reach them."""
    database = f"{started['postgres'].sockets}/.s.PGSQL.5432"
    direct = stack.enter_context(Proxy(database, at=HOST))
    valkey = stack.enter_context(Proxy(urlsplit(started["valkey"].url).path, at=HOST))
    owner = f"postgresql://amends@{HOST}:{direct.port}/{started['database']}"
    found = {"DATABASE_OWNER_URL": owner, "REDIS_URL": f"redis://{HOST}:{valkey.port}/0"}
    if broker == "rabbitmq":
        found |= {"BROKER_URL": rabbitmq(processes, HOST)}
    return found


def one_is_cut_off(host: Machine, webs: Balancer, calls: Calls) -> None:
    calls.phase = "one is cut off"
    host.pull_the_cable()
    until(lambda: len(webs.up()) == 2, 30, "HAProxy sends to the two that it reaches")
    until(lambda: ready(host) != 200, 30, "the one that is alone says so")
    time.sleep(CUT_SECONDS)
    host.put_it_back()
    until(lambda: ready(host) == 200, 30, "it finds the database again")
    until(lambda: len(webs.up()) == 3, 30, "and is sent requests")


def one_dies_and_comes_back_older(
    host: Machine, webs: Balancer, calls: Calls, environment: dict[str, str], folder: Path
) -> None:
    calls.phase = "one died"
    host.dies()
    until(lambda: len(webs.up()) == 2, 30, "HAProxy sends to the two that are left")
    time.sleep(CALM_SECONDS)
    begin(host, environment, **of_old(old_code(folder, OLD_BEHIND_A_POOLER)))
    until(lambda: len(webs.up()) == 3, 60, "the older version is sent requests")
    calls.phase = "one is older"
    time.sleep(CALM_SECONDS)


def the_primary_dies(storm: Any, webs: Balancer, calls: Calls, count: int, broker: str) -> None:
    """What was answered is on the standby as well, for the primary waits for it."""
    primary = started["postgres"]
    standby = Standby(primary, started["folder"] / f"synchronous-{broker}")
    ask(primary, "ALTER SYSTEM SET synchronous_standby_names = '*'", None, fetch=False)
    ask(primary, "SELECT pg_reload_conf()", None, fetch=True)
    until(lambda: ask(primary, WAITS_FOR_IT, None, fetch=True), 30, "the standby is synchronous")
    time.sleep(CALM_SECONDS / 2)
    calls.phase = "the primary died"
    standby.primary_dies()
    started["postgres"] = standby.takes_over()
    connections.close_all()
    until(lambda: len(webs.up()) == count, 60, "all find the new primary")
    more_plans(storm)
    time.sleep(CALM_SECONDS)


WAITS_FOR_IT = "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')"


def ready(host: Machine) -> int:
    """What its web says of itself; 0 where nothing answers."""
    return host.asks_itself(f"http://{host.host}:{network.WEB_PORT}/readyz")


def more_plans(storm: Any) -> None:
    for _ in range(2):
        storm.plans.append(storm.plan(f"s{len(storm.plans)}"))
    storm.hint()


@contextmanager
def asked_of(hosts: list[Machine], calls: Calls) -> Iterator[dict[str, list[tuple[str, int]]]]:
    """What the web of each machine says of itself all the while, by the phase of the story."""
    said: dict[str, list[tuple[str, int]]] = {host.name: [] for host in hosts}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            for host in hosts:
                phase, status = calls.phase, ready(host)
                if phase == calls.phase:  # else it was answered in the midst of what happened next
                    said[host.name].append((phase, status))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield said
    finally:
        over.set()
        watching.join()
