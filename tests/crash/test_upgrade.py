"""A desk with 400,000 runs goes over to the present version, while its agents go on calling."""

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from config.local.places import ROOT
from config.local.postgres import RUNTIME, Postgres
from tests import servers
from tests.crash.versions import OLD_BEHIND_A_POOLER, old_code
from tests.processes import Processes

pytestmark = [
    pytest.mark.django_db(transaction=True), pytest.mark.earnest, pytest.mark.timeout(1800),
]  # fmt: skip
RUNS = int(os.environ.get("DRILL_RUNS", "400000"))
AGENTS = 4
PHASE_SECONDS = 10
LONGER_SECONDS_MAX = 1.0
"""So much longer than before an upgrade may a call wait during it."""


class Agents:
    """Each asks `begin` of one web or another, over and over; how long it took, by phase."""

    def __init__(self, token: str) -> None:
        self.webs: list[str] = []
        self.phase = "old"
        self.took: dict[str, list[float]] = defaultdict(list)
        self.over = threading.Event()
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}

    def calls(self, number: int) -> None:
        call = 0
        while not self.over.is_set():
            call += 1
            web, phase = self.webs[call % len(self.webs)], self.phase
            began = time.monotonic()
            answer = self._begins(web, f"upgrade_{number}_{call // 20}", f"{number}-{call}")
            self.took[phase].append(time.monotonic() - began)
            assert answer["answer"] in {"proceed", "wait"}, answer
            time.sleep(0.05)

    def _begins(self, web: str, run: str, name: str) -> dict[str, Any]:
        from ledger.parsed_events import new_id

        asked = {
            "id": new_id(), "type": "action.planned", "run": run, "action": f"act_{name}",
            "n": 1, "attempt": f"try-{name}",
            "data": {
                "tool": "crm.note", "args": {"text": name}, "key": f"{run}-{name}",
                "targets": [{"type": "note", "id": name}], "class": "internal_update",
                "intent": {"goal": "note it", "reason": "asked for"},
            },
        }  # fmt: skip
        body = json.dumps(asked).encode()
        request = urllib.request.Request(f"{web}/api/v1/actions/begin", body, self._headers)
        with urllib.request.urlopen(request, timeout=60) as found:
            answer: dict[str, Any] = json.load(found)
            return answer


def test_no_call_waits_while_a_large_desk_is_upgraded_and_both_versions_serve(
    own_postgres: Postgres, processes: Processes, tmp_path: Path, drilled: Callable[..., None]
) -> None:
    old = old_code(tmp_path, OLD_BEHIND_A_POOLER)
    url = own_postgres.ensure("upgraded")
    own_postgres.ensure_role(RUNTIME)
    of_old = {"PYTHONPATH": os.pathsep.join([str(old), str(old / "sdk")])}
    manage(old, url, "manage.py", "prepare")
    token = json.loads(manage(old, url, "-m", "bench.generate", "--runs", str(RUNS)))["token"]
    agents = Agents(token)
    with ThreadPoolExecutor(AGENTS) as threads:
        webs = [processes.web(code=old, DATABASE_URL=url, **of_old) for _ in range(2)]
        agents.webs = [one.url for one in webs]
        calling = [threads.submit(agents.calls, number) for number in range(AGENTS)]
        try:
            time.sleep(PHASE_SECONDS)
            agents.phase = "upgrade"
            began = time.monotonic()
            manage(ROOT, url, "manage.py", "prepare")
            took = time.monotonic() - began
            agents.phase = "old on new"
            time.sleep(PHASE_SECONDS)
            present = processes.web(DATABASE_URL=url)
            agents.phase = "both"
            agents.webs = [webs[0].url, present.url]
            time.sleep(PHASE_SECONDS)
            agents.phase = "new"
            agents.webs = [present.url]
            time.sleep(PHASE_SECONDS / 2)
            agents.phase = "back to old"  # whoever goes back finds it as it was
            agents.webs = [webs[1].url]
            time.sleep(PHASE_SECONDS / 2)
        finally:
            agents.over.set()
        for one in calling:
            one.result(timeout=90)

    longest = {phase: max(found) for phase, found in agents.took.items()}
    made = sum(map(len, agents.took.values()))
    with psycopg.connect(url) as session:
        (kept,) = session.execute(COUNT_SQL).fetchone() or (0,)
    assert kept == made, "every call that was answered is on record"
    drilled(
        f"upgrade at {RUNS:,} runs", calls=made, seconds=round(took, 1),
        longest="; ".join(f"{phase} {seconds:.2f} s" for phase, seconds in longest.items()),
    )  # fmt: skip
    assert longest["upgrade"] - longest["old"] < LONGER_SECONDS_MAX, longest


COUNT_SQL = "SELECT count(*) FROM ledger_action WHERE key LIKE 'upgrade\\_%'"


def manage(code: Path, url: str, *command: str) -> str:
    """Run a command of that version, which may have the tables' owner; what it printed."""
    known = servers.environment(url, os.environ["REDIS_URL"]) | {"AMENDS_DEMO": ""}
    if "prepare" in command:
        known |= {"DATABASE_URL": servers.as_runtime(url)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        cwd=code,
        env=os.environ | known | {"PYTHONPATH": os.pathsep.join([str(code), str(code / "sdk")])},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
