"""The outside system of the tests, seen from a test: seed it, make mischief, read its journal."""

import http.client
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from config.local.parent_death_signal import leashed
from config.local.places import ROOT
from tests.ports import free_port

DIST = Path(__file__).parent / "dist"
"""The installed package through whose entry point the connector is found."""


class World:
    """One service in its own process. Its journal outlives it."""

    def __init__(self, folder: Path) -> None:
        import signal

        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._since = 0
        self.file = folder / f"journal-{self.port}.ndjson"
        command = [sys.executable, "-m", "tests.outside.service", str(self.port), str(self.file)]
        self._running = subprocess.Popen(
            leashed(command, ends_with=signal.SIGTERM), cwd=ROOT, env=os.environ.copy()
        )
        deadline = time.monotonic() + 90
        while not self._answers():
            if time.monotonic() > deadline or self._running.poll() is not None:
                raise AssertionError("The outside service did not start.")
            time.sleep(0.02)

    def seed(self, things: dict[str, dict[str, Any]]) -> None:
        """What is there from the beginning, or is changed by somebody who is not of ours."""
        self._ask("POST", "/seed", things)

    def mischief(self, thing: str, **how: Any) -> None:
        """Make the next call on a thing go wrong; `"*"` is whatever comes next."""
        self._ask("POST", "/mischief", {"thing": thing} | how)

    def thing(self, name: str) -> dict[str, Any] | None:
        status, body = self._ask("GET", f"/things/{name}")
        found: dict[str, Any] = body
        return found if status == 200 else None

    def most_at_once(self, kind: str) -> int:
        """How many calls on things whose names begin with that letter were there at once."""
        return int(self._ask("GET", f"/most/{kind}")[1]["most"])

    def fresh(self) -> None:
        """Forget things, keys and mischief; what is in the journal already is not of this test."""
        self._ask("POST", "/forget", {})
        self._since = len(self.file.read_text().splitlines())

    def journal(self) -> list[dict[str, Any]]:
        """Every effect there ever was, oldest first."""
        return [json.loads(line) for line in self.file.read_text().splitlines()[self._since :]]

    def effects(self) -> list[str]:
        """The things that were changed, in order."""
        return [line["thing"] for line in self.journal()]

    def stop(self) -> None:
        self._running.terminate()
        self._running.wait(30)

    def _answers(self) -> bool:
        try:
            return self._ask("GET", "/healthz")[0] == 200
        except OSError:
            return False

    def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        talk = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            talk.request(method, path, json.dumps(body) if body is not None else None)
            answer = talk.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            talk.close()
