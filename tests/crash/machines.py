"""Machines of a test: network namespaces behind a bridge, each with an address and a cable."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.processes import Processes

NETWORK = "198.18.77"
"""Of the addresses that are kept for tests of networks (RFC 2544): they lead nowhere else."""

HOST = f"{NETWORK}.1"
"""This machine, as the others see it: database, broker and proxy are here."""

WEB_PORT = 8000

ASK = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=10).status)
except urllib.error.HTTPError as answer:
    print(answer.code)
except OSError:
    print(0)
"""


def allowed() -> bool:
    """Whether whoever runs this may make a network of its own."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    tried = subprocess.run(["ip", "netns", "add", "amends-try"], check=False, capture_output=True)
    subprocess.run(["ip", "netns", "del", "amends-try"], check=False, capture_output=True)
    return tried.returncode == 0


needed = pytest.mark.skipif(not allowed(), reason="no network can be made here (root, iproute2)")


class Machine(Processes):
    """Processes of ours that reach the others by one cable, which can be pulled."""

    def __init__(self, folder: Path, number: int) -> None:
        super().__init__(folder)
        folder.mkdir()
        self.name = f"amends-m{number}"
        self.address = self.host = f"{NETWORK}.{10 + number}"
        self.before = ["ip", "netns", "exec", self.name]
        self._cable = f"amends-c{number}"

    def plug_in(self) -> None:
        ip("netns", "add", self.name)
        inside = f"amends-i{number_of(self.name)}"
        ip("link", "add", self._cable, "type", "veth", "peer", "name", inside)
        ip("link", "set", inside, "netns", self.name)
        ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", inside)
        ip("-n", self.name, "link", "set", inside, "up")
        ip("-n", self.name, "link", "set", "lo", "up")
        ip("link", "set", self._cable, "master", "amends-b")
        ip("link", "set", self._cable, "up")

    def pull_the_cable(self) -> None:
        """Nothing arrives and nothing is closed: nobody is told."""
        ip("link", "set", self._cable, "down")

    def put_it_back(self) -> None:
        ip("link", "set", self._cable, "up")

    def asks_itself(self, url: str) -> int:
        """The status of one of its own addresses, also where the cable is out; 0 for no answer."""
        command = [*self.before, sys.executable, "-I", "-S", "-c", ASK, url]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
        return int(done.stdout)

    def port(self) -> int:
        """Its ports are its own: the same for whichever web comes after another."""
        return WEB_PORT

    def answers(self, url: str) -> bool:
        return self.asks_itself(url) == 200

    def dies(self) -> None:
        """The power is gone: whatever runs here, at once."""
        for one in self.started:
            one.kill()

    def unplug(self) -> None:
        self.stop()
        ip("netns", "del", self.name)


@contextmanager
def machines(folder: Path, count: int) -> Iterator[list[Machine]]:
    """So many of them, on one bridge."""
    with bridge():
        made = [Machine(folder / f"m{number}", number) for number in range(1, count + 1)]
        try:
            for one in made:
                one.plug_in()
            yield made
        finally:
            for one in made:
                one.unplug()


@contextmanager
def bridge() -> Iterator[None]:
    ip("link", "add", "amends-b", "type", "bridge")
    try:
        ip("addr", "add", f"{HOST}/24", "dev", "amends-b")
        ip("link", "set", "amends-b", "up")
        yield
    finally:
        ip("link", "del", "amends-b")


def number_of(name: str) -> str:
    return name.removeprefix("amends-m")


def ip(*words: str) -> Any:
    done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
    return json.loads(done.stdout) if "-j" in words else done.stdout
