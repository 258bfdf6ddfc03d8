"""`make up` as somebody types it: it answers, it ends, and it leaves nothing behind."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import django.db
import psycopg
import pytest

from config.local.places import ROOT
from config.local.postgres import Postgres
from config.local.servers import GETS_READY, DidNotStart, Valkey
from config.processes import DEMO_PORT_ABOVE, DEMO_PORTS, Manager, Watch, demo_ports
from demo import agents
from tests.ports import free_port, free_ports
from tests.processes import answers

UP_SECONDS_MAX = 180.0
GONE_SECONDS_MAX = 40.0
# What a local desk reads nothing of: here it has servers of its own, as a newcomer would.
NOT_INHERITED = (
    "DATABASE_URL",
    "DATABASE_OWNER_URL",
    "REDIS_URL",
    "AMENDS_URL",
    "DJANGO_SECRET_KEY",
)


class Desk:
    """A `make up` of its own, in a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        self.url = f"http://localhost:{self.port}"
        kept = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
        self.environment = kept | {"AMENDS_LOCAL": str(home)}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "config.processes",
            "--port",
            str(self.port),
            "--demo",
            "0",
        ]
        with (self.home / "up.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=self.environment, stdout=log, stderr=log
            )
        deadline = time.monotonic() + UP_SECONDS_MAX
        while not answers(f"{self.url}/statusz"):
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.1)
        return self.process

    def said(self) -> str:
        return (self.home / "up.log").read_text()

    def left_behind(self) -> list[str]:
        """Command lines of processes that still belong to this desk, by their environment."""
        mark = f"AMENDS_LOCAL={self.home}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:  # it ended while we looked, or is not ours
                continue
        return found

    def is_gone(self) -> bool:
        deadline = time.monotonic() + GONE_SECONDS_MAX
        while self.left_behind():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def broker(self) -> int:
        """The process of its broker, which writes its title over its environment."""
        return self.server("valkey")

    def server(self, word: str) -> int:
        command = ["pgrep", "--parent", str(self.process.pid), "--full", word]
        return int(subprocess.run(command, check=True, capture_output=True).stdout)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    if desk.process is not None and desk.process.poll() is None:
        desk.process.terminate()
        desk.process.wait(GONE_SECONDS_MAX)


def try_another(desk: Desk) -> subprocess.CompletedProcess[str]:
    """Somebody types `make up` again in the same checkout."""
    return subprocess.run(
        [sys.executable, "-m", "config.processes", "--port", str(free_port())],
        cwd=ROOT,
        env=desk.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def kill_servers(desk: Desk) -> None:
    """The embedded servers are killed, by a kernel without memory perhaps, and started again."""
    killed = {name: desk.server(name) for name in ("valkey", "postgres -D")}
    for pid in killed.values():
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + UP_SECONDS_MAX
    while desk.said().count("is there again.") < len(killed) or not answers(f"{desk.url}/statusz"):
        assert time.monotonic() < deadline, desk.said()
        time.sleep(0.1)
    assert "PostgreSQL has ended, and is started again." in desk.said()
    assert all(desk.server(name) != pid for name, pid in killed.items())


def test_a_killed_desk_leaves_nothing_and_starts_again_and_ctrl_c_stops_it(desk: Desk) -> None:
    first = desk.start()
    secrets = (desk.home / "secrets.env").read_bytes()
    kill_servers(desk)
    first.kill()
    first.wait()
    assert desk.is_gone(), desk.left_behind()

    second = desk.start()
    refused = try_another(desk)
    with urllib.request.urlopen(f"{desk.url}/statusz") as answer:
        ready = json.load(answer)
    second.send_signal(signal.SIGINT)

    assert second.wait(GONE_SECONDS_MAX) == 0
    assert desk.is_gone(), desk.left_behind()
    assert refused.returncode == 1
    assert f"already running here: {desk.url}" in refused.stderr
    assert {"database", "broker", "worker", "scheduler", "sweeper"} <= set(ready["checks"])
    assert (desk.home / "secrets.env").read_bytes() == secrets


def test_a_taken_port_is_named_with_a_free_one_before_anything_is_started(desk: Desk) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", desk.port))
        other.listen()
        refused = subprocess.run(
            [sys.executable, "-m", "config.processes", "--port", str(desk.port)],
            cwd=ROOT,
            env=desk.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

        suggested = re.search(r"Try: make up PORT=(\d+)$", refused.stderr.strip())
        assert suggested, refused.stderr
        with socket.socket() as ours:
            ours.bind(("127.0.0.1", int(suggested[1])))  # nobody is there, nor is the other

    assert refused.returncode == 1
    assert f"Port {desk.port} is taken" in refused.stderr
    assert not (desk.home / "postgres").exists()


def test_a_killed_desk_leaves_no_worker_either_when_its_broker_hangs(desk: Desk) -> None:
    first = desk.start()
    broker = desk.broker()
    os.kill(broker, signal.SIGSTOP)
    try:
        first.kill()
        first.wait()
        assert desk.is_gone(), desk.left_behind()
    finally:
        os.kill(broker, signal.SIGKILL)


def test_no_room_below_its_output_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full, Path(os.devnull).open("w") as room:
        monkeypatch.setattr(sys, "stdout", full)
        manager = Manager("http://localhost:1", Watch([]))

        for _ in range(10_000):
            manager._system_print("what is lost")

        monkeypatch.undo()
        os.dup2(room.fileno(), full.fileno())  # what was kept of it is written at the end


@pytest.mark.parametrize("away", [psycopg.OperationalError, django.db.OperationalError])
def test_the_agents_of_the_demo_go_on_while_a_database_is_away(away: type[Exception]) -> None:
    """Where they ended, all of `make up` would."""

    def story() -> None:
        raise away

    agents.play(story)


def test_a_server_that_does_not_start_says_why_once_and_is_tried_until_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("config.processes.AGAIN_SECONDS", 0.01)
    server = Valkey(tmp_path)
    starts = [DidNotStart("no room"), subprocess.TimeoutExpired("unshare", 10), None]
    said: list[str] = []

    def start() -> None:
        if trouble := starts.pop(0):
            raise trouble

    monkeypatch.setattr(server, "alive", lambda: not starts)
    monkeypatch.setattr(server, "start", start)
    watch = Watch([server])

    watch.begin(said.append)
    deadline = time.monotonic() + GONE_SECONDS_MAX
    while len(said) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    watch.end()

    assert [line.split()[:3] for line in said] == [
        ["Valkey", "has", "ended,"], ["no", "room", "It"], ["Valkey", "is", "there"],
    ]  # fmt: skip


def test_a_database_is_waited_for_while_it_redoes_what_a_crash_left_undone_but_not_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Broken off after half a minute it would begin anew, and that without end."""
    monkeypatch.setattr("config.local.servers.START_SECONDS_MAX", 5.0)
    redone, told, said = tmp_path / "redone", [""], [""]
    command = f"until test -e {redone}; do sleep 0.1; done; false"
    server = Postgres(tmp_path / "home", durable=False, settings={"restore_command": command})
    server.start()

    def restarted() -> Watch:
        server.stop()
        (server.data / "recovery.signal").touch()
        watch = Watch([server])
        watch.begin(said.append)
        until(is_told)
        return watch

    def is_told() -> bool:
        told.append(capfd.readouterr().out)
        return GETS_READY in "".join(told)

    watch = restarted()
    redone.touch()
    until(lambda: said[-1] == "PostgreSQL is there again.")
    watch.end()

    redone.unlink()
    told.clear()
    restarted().end()

    assert not server.alive()
    assert said[-1] == "PostgreSQL has ended, and is started again."


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + GONE_SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_demo_of_a_second_desk_goes_around_the_ports_of_the_first() -> None:
    """Two desks on ports side by side: the second one's outside world takes the next free row."""
    port = free_ports(DEMO_PORT_ABOVE + 3 * DEMO_PORTS)
    row = port + DEMO_PORT_ABOVE
    with socket.socket() as neighbour:
        neighbour.bind(("127.0.0.1", row + 2))
        neighbour.listen()
        around = demo_ports(port)

    assert around == row + DEMO_PORTS
    assert demo_ports(port) == row
