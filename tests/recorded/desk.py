"""A recorded desk under test: the product's own processes, a second database, a person's token."""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg

from config.local.places import ROOT
from tests.processes import Process, Processes

AIRLINE = ROOT.parent / "shared" / "corpus" / "airline"
REPLAY_SECONDS_MAX = 420.0
SETTLE_SECONDS_MAX = 240.0


@dataclass
class RecordedDesk:
    """`outside` is the business's database, `http` speaks with the token of Ada, who recovers.

    `slug` is the business's and its workspace's, `recording` the folder of its runs.
    """

    web: Process
    outside: str
    http: httpx.Client
    slug: str
    recording: Path

    def get(self, path: str, **query: Any) -> Any:
        answer = self.http.get(f"/api/v1{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, **said: Any) -> Any:
        answer = self.http.post(f"/api/v1{path}", json=said)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def cases(self, q: str) -> list[dict[str, Any]]:
        """Every case that the query means, over all pages."""
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            page = self.get("/cases", q=q, after=after, limit=100)
            found += page["cases"]
            after = page["after"]
            if not after:
                return found


def environment(outside: str, folder: Path) -> dict[str, str]:
    sockets = psycopg.conninfo.conninfo_to_dict(outside)["host"]
    return {
        "DEMO_DATABASE_URL": outside,
        "DEMO_HOME": str(folder / "demo"),
        "AMENDS_OUTBOUND_ALLOW": f"127.0.0.1,localhost,{sockets}",
    }


def replay(
    processes: Processes, desk: RecordedDesk, *more: str, policy: Path | None = None
) -> None:
    """`manage.py replay` as people type it, in a process of its own."""
    command = [sys.executable, "manage.py", "replay", str(desk.recording)]
    command += ["--url", desk.web.url, *more]
    if policy is not None:
        command += ["--policy", str(policy)]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "sdk")])
    streaming = processes.run(
        "replay", command, PYTHONPATH=paths, **environment(desk.outside, processes.folder)
    )
    wait_until(lambda: not streaming.alive(), REPLAY_SECONDS_MAX)
    assert "runs replayed" in streaming.said(), streaming.said()


def wait_until(true: Any, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.25)
