"""What the table of docs/failclosed.md is measured with: an approver, and journals."""

import json
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.adapters.conftest import HERE as ADAPTERS
from tests.adapters.conftest import bare_environment, command_of
from tests.ports import free_port
from tests.sdk.conftest import *  # noqa: F403 - the workspace and its agent's key

HERE = Path(__file__).parent
START_SECONDS_MAX = 60
END_SECONDS_MAX = 180


class Cell:
    """One fault and one gate: agents' processes, and the journal in which the tool writes."""

    def __init__(self, folder, framework, agents):
        folder.mkdir()
        self.folder, self.journal = folder, folder / "ran"
        self._command = command_of(framework, agents)

    def starts(self, **asked):
        """An agent's process; each has what is stored, and the journal, in common."""
        told = {"journal": str(self.journal), "state": str(self.folder / "state")} | asked
        command = [*self._command, json.dumps(told)]
        with (self.folder / "said").open("a") as said:
            return subprocess.Popen(
                [str(word) for word in command], cwd=self.folder, stdout=said, stderr=said,
                env=bare_environment(self.folder / "home", HERE / "agents"),
            )  # fmt: skip

    def plays(self, **asked):
        """The same, to its end."""
        return self.starts(**asked).wait(END_SECONDS_MAX)

    def ran(self):
        return lines_of(self.journal)

    def said(self):
        return (self.folder / "said").read_text(errors="replace")


def lines_of(journal):
    return (
        [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    )


@contextmanager
def approver(folder, mode):
    """The service that a framework's own gate asks; its address, and the file of its yeses."""
    port, journal = free_port(), folder / "yes"
    command = [sys.executable, HERE / "approver.py", port, journal, mode]
    process = subprocess.Popen([str(word) for word in command])
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                urllib.request.urlopen(url, timeout=10).close()
                break
            except OSError:
                assert time.monotonic() < deadline, "the approver did not start"
                time.sleep(0.05)
        yield url, journal
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def cells(tmp_path):
    def made(name, framework, agents):
        return Cell(tmp_path / name.replace(" ", "_"), framework, agents)

    return made


ADAPTED = ADAPTERS / "agents"
