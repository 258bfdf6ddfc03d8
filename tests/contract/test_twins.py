"""One table of what a twin does, for the clients of both languages: tests/data/twins.json.

A step asks a service for the undo of licence L-7, signed by the library of Standard Webhooks
(`signed` says how else), and says what must come: `status`, `outcome`, `observed`, `detail`.
`mood` is how the service is: `locked` (it refuses), `dying` (its answer is lost), `forgetful` (it
cannot tell), `slow` (it waits for a file), `killed before` or `after` it was done. `restart` begins
a new process on the same store, with `other` that of the other language. At the end stands what was
really done. `restore_seat` writes down what it was handed as the state before.
"""

import datetime as dt
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from tests import npm

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCENARIOS = json.loads((ROOT / "tests" / "data" / "twins.json").read_text("utf-8"))["scenarios"]
SERVICES: dict[str, list[Path | str]] = {
    "python": [sys.executable, HERE / "twins.py"],
    "typescript": [npm.NODE, HERE / "twins.ts"],
}
SECRET, OLDER, FOREIGN = (f"whsec_{one * 8}" for one in ("MfKQ", "QUJD", "Zm9v"))


class Service:
    """The service of one language, on a store and a journal that outlive it."""

    def __init__(self, language: str, folder: Path) -> None:
        self.language, self.folder = language, folder
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[str]":
        given = [self.folder / "keys.sqlite", self.folder / "journal", f"{SECRET} {OLDER}"]
        return subprocess.Popen(
            [str(word) for word in [*SERVICES[self.language], *given]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            encoding="utf-8", env=os.environ | {"PYTHONPATH": str(ROOT / "sdk")},
        )  # fmt: skip

    def restart(self, *, other: bool) -> None:
        self.end()
        if other:
            [self.language] = SERVICES.keys() - {self.language}
        self.process = self._start()

    def ask(self, step: dict[str, Any]) -> dict[str, Any] | None:
        """Its answer; None where it died over it."""
        body = step["body"] if "body" in step else json.dumps(asked(step), ensure_ascii=False)
        said = {"headers": signed(body, step.get("signed", "")), "body": body,
                "mood": step.get("mood", "well")}  # fmt: skip
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(said) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        answer: dict[str, Any] | None = json.loads(line) if line else None
        return answer

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()

    def journal(self) -> list[str]:
        path = self.folder / "journal"
        return path.read_text("utf-8").splitlines() if path.exists() else []


def asked(step: dict[str, Any]) -> dict[str, Any]:
    return {"v": 1, "do": step["do"], "operation": step.get("operation", "release_licence"),
            "key": step.get("key", "k-1"), "target": {"type": "licence", "id": "L-7"},
            "args": step.get("args", {}),
            **{name: step[name] for name in ("before", "expected") if name in step}}  # fmt: skip


def signed(body: str, how: str) -> dict[str, str]:
    secrets = {"with another secret": FOREIGN, "with the older secret": OLDER}
    off = {"late": -900, "early": 900}.get(how, 0)
    at = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=off)
    text = body + " " if how == "of another body" else body
    signature = Webhook(secrets.get(how, SECRET)).sign("m-1", at, text)
    if how.startswith("as the"):
        others = [Webhook(FOREIGN).sign("m-1", at, text)] * (1 if how == "as the second" else 8)
        signature = " ".join([*others, signature])
    headers = {"webhook-id": "m-1", "webhook-timestamp": str(int(at.timestamp())),
               "webhook-signature": signature}  # fmt: skip
    if how == "without an id":
        del headers["webhook-id"]
    return {} if how == "not at all" else headers


@pytest.fixture
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    service = Service(request.param, tmp_path)
    yield service
    service.end()


EACH = [
    pytest.param(language, scenario, id=f"{language}: {scenario['name']}")
    for scenario in SCENARIOS
    for language in SERVICES
]


@pytest.mark.parametrize(("service", "scenario"), EACH, indirect=["service"])
def test_a_twin_does_what_the_table_says(service: Service, scenario: dict[str, Any]) -> None:
    for number, step in enumerate(scenario["steps"]):
        if "restart" in step:
            service.restart(other=step.get("other", False))
            continue
        answer = service.ask(step)
        if step.get("mood", "").startswith("killed"):
            assert answer is None
            continue
        assert answer is not None, f"step {number}, {step}: it died"
        for name in ("status", "outcome", "observed", "detail"):
            if name in step:
                assert answer.get(name) == step[name], f"step {number}, {step}: {answer}"
    assert service.journal() == scenario["journal"]


@pytest.mark.parametrize("service", SERVICES, indirect=True)
def test_a_key_is_remembered_by_a_machine_that_begins_years_ahead(service: Service) -> None:
    first = service.ask({"do": "apply"})
    with closing(sqlite3.connect(service.folder / "keys.sqlite")) as keys:
        keys.execute("UPDATE keys SET began = began - 500 * 86400")
        keys.commit()
    service.restart(other=False)

    assert service.ask({"do": "apply"}) == first
    assert len(service.journal()) == 1


@pytest.mark.parametrize("service", SERVICES, indirect=True)
@pytest.mark.parametrize("language", SERVICES)
def test_a_key_is_not_free_while_another_process_is_at_it(service: Service, language: str) -> None:
    """A server has several workers: one of them is asked about what another one does, also after an
    hour for which the other one was stopped.
    """
    other = Service(language, service.folder)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(service.ask, {"do": "apply", "mood": "slow"})
        while not (service.folder / "journal.begun").exists():
            assert not first.done()
            time.sleep(0.02)
        during = [other.ask({"do": do}) for do in ("probe", "apply")]
        with closing(sqlite3.connect(service.folder / "keys.sqlite")) as keys:
            keys.execute("UPDATE keys SET began = began - 3600")
            keys.commit()
        during += [other.ask({"do": do}) for do in ("probe", "apply")]
        (service.folder / "journal.go").touch()
        done = first.result(60)
    after = other.ask({"do": "probe"})
    other.end()

    assert [one and one["outcome"] for one in during] == ["unknown"] * 4
    assert [one and one["outcome"] for one in (done, after)] == ["applied", "applied"]
    assert len(service.journal()) == 1
