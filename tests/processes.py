"""Real processes of the product, started by a test against its own database and broker."""

import contextlib
import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException
from itertools import groupby
from pathlib import Path
from urllib.error import HTTPError

from config.local.parent_death_signal import leashed
from config.local.places import ROOT
from config.processes import process_list
from tests.ports import free_port
from tests.servers import as_runtime

START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 30.0
KEPT_MAX = 3  # each has its memory and its connections
OURS = {"web", "worker", "scheduler", "sweeper"}
OF_ONE_TEST = {"PYTEST_CURRENT_TEST"}


class Process:
    """One running process; `kill()` is SIGKILL to it and its pool, `stop()` is SIGTERM."""

    def __init__(
        self, name: str, command: list[str], log: Path, env: dict[str, str], code: Path | str = ROOT
    ) -> None:
        self.name, self.log, self.url = name, log, ""
        self.said_before = 0
        with log.open("ab") as output:
            self._running = subprocess.Popen(
                leashed(command, ends_with=signal.SIGTERM),
                cwd=code,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._running.pid

    def alive(self) -> bool:
        return self._running.poll() is None

    def kill(self) -> None:
        """Gone in the middle of whatever it was doing, with every child of its pool."""
        if self.alive():
            os.killpg(self.pid, signal.SIGKILL)
        self._running.wait()

    def stop(self) -> None:
        self.ask_to_stop()
        self.wait_until_gone()

    def ask_to_stop(self) -> None:
        """SIGTERM, once: a second one would have a worker leave what it is doing."""
        if self.alive():
            self._running.terminate()

    def wait_until_gone(self) -> None:
        if self.alive():
            try:
                self._running.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
        # A pool's children may outlive a stopped master for a moment.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def wait_until(self, answers: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not answers():
            if not self.alive() or time.monotonic() > deadline:
                self.stop()
                raise AssertionError(f"{self.name} did not start.\n{self.said()}")
            time.sleep(0.05)

    def wait_until_ready(self) -> None:
        """A web process whose database was changed below it finds its way to the new one."""
        self.wait_until(lambda: database_answers(f"{self.url}/readyz"))

    def said(self) -> str:
        """Its log; of a process that is kept, what it said in this test."""
        return self.log.read_bytes()[self.said_before :].decode(errors="replace")


class Processes:
    """What the `processes` fixture gives: `web()`, `worker()`, `scheduler()`, `sweeper()`.

    Each returns when it is healthy. More environment goes as keywords (`FAULT="…"`), `code` is the
    folder of another version of ours. Logs stay in the test's folder and are shown when a test
    fails.
    """

    def __init__(self, folder: Path, kept: "Processes | None" = None) -> None:
        self.folder = folder
        self.address, self.host = "127.0.0.1", "localhost"
        self.before: list[str] = []  # of each command line
        self.started: list[Process] = []
        self.lent: list[Process] = []
        self._kept = kept
        self._webs: list[tuple[dict[str, str], Process]] = []
        self._waits: list[tuple[Process, Callable[[], bool]]] | None = None

    @contextlib.contextmanager
    def side_by_side(self) -> Iterator[None]:
        """What is started within is waited for at the end."""
        waits: list[tuple[Process, Callable[[], bool]]] = []
        self._waits = waits
        try:
            yield
        finally:
            self._waits = None
        for process, answers in waits:
            process.wait_until(answers)

    def web(self, *, code: Path | str = ROOT, **environment: str) -> Process:
        return self._web(environment, code)

    def kept_web(self, **environment: str) -> Process:
        """A web process with this environment that earlier tests of the run have asked as well.

        For whoever only asks it; one that a test stops or kills is started anew for the next. Ids
        never come again within a run, so what it remembers cannot mislead it. Its connections were
        cut with the test before: a thread that takes large batches says 503 once when it finds out.
        """
        assert self._kept is not None, "what is kept keeps nothing itself"
        wanted = {name: value for name, value in os.environ.items() if name not in OF_ONE_TEST}
        wanted |= environment
        webs = self._kept._webs
        for one in [one for one in webs if one[0] == wanted or not one[1].alive()]:
            webs.remove(one)
            if one[1].alive():
                found = one[1]
                found.said_before = found.log.stat().st_size
                found.wait_until_ready()
                break
        else:
            found = self._kept.web(**environment)
        webs.append((wanted, found))
        while len(webs) > KEPT_MAX:
            webs.pop(0)[1].stop()
        self.lent.append(found)
        return found

    def web_with_few_files(self) -> Process:
        """It may have 1,024 files open, as an account's default is, and cannot raise that."""
        return self._web({}, few_files=True)

    def _web(
        self, environment: dict[str, str], code: Path | str = ROOT, *, few_files: bool = False
    ) -> Process:
        port = self.port()
        process = self._start("web", port, environment, code=code, few_files=few_files)
        process.url = f"http://{self.host}:{port}"
        self._wait(process, lambda: self.answers(f"{process.url}/healthz"))
        return process

    def worker(
        self, *, concurrency: int = 2, code: Path | str = ROOT, **environment: str
    ) -> Process:
        more = ["--concurrency", str(concurrency)]
        process = self._start("worker", 0, environment, more, code)
        self._wait(process, lambda: "ready." in process.said())
        return process

    def scheduler(self, **environment: str) -> Process:
        process = self._start("scheduler", 0, environment)
        self._wait(process, lambda: "scheduler: " in process.said())
        return process

    def sweeper(self, *, code: Path | str = ROOT, **environment: str) -> Process:
        process = self._start("sweeper", 0, environment, code=code)
        self._wait(process, lambda: "sweeper: " in process.said())
        return process

    def run(
        self, name: str, command: list[str], *, code: Path | str = ROOT, **environment: str
    ) -> Process:
        """Any other program (an outside system), on the same leash; wait for it yourself."""
        log = self.folder / f"{name}-{len(self.started)}.log"
        process = Process(name, [*self.before, *command], log, os.environ | environment, code)
        self.started.append(process)
        return process

    def port(self) -> int:
        """Where the next web listens."""
        return free_port()

    def answers(self, url: str) -> bool:
        """Whether that address of a process of these says 200."""
        return answers(url)

    def _wait(self, process: Process, answers: Callable[[], bool]) -> None:
        if self._waits is None:
            process.wait_until(answers)
        else:
            self._waits.append((process, answers))

    def stop(self) -> None:
        """The last started first; ours that were started one after another end side by side."""
        for are_ours, found in groupby(reversed(self.started), lambda one: one.name in OURS):
            together = list(found)
            for process in together if are_ours else ():
                process.ask_to_stop()
            for process in together:
                process.wait_until_gone() if are_ours else process.stop()

    def _start(
        self,
        name: str,
        port: int,
        environment: dict[str, str],
        more: list[str] | None = None,
        code: Path | str = ROOT,
        *,
        few_files: bool = False,
    ) -> Process:
        command = process_list(port, self.address, demo=False)[name] + (more or [])
        if few_files:
            command = ["sh", "-c", 'ulimit -n 1024 && exec "$@"', "sh", *command]
        paths = os.pathsep.join([str(ROOT), str(ROOT / "sdk")])
        owner = environment.get("DATABASE_URL", os.environ["DATABASE_URL"])
        settings = {
            "AMENDS_PROCESS": name,
            "AMENDS_WEB_PROCESSES": "1",  # a story of several says so
            "DATABASE_OWNER_URL": owner,
            "PYTHONPATH": paths,
            "PYTHONUNBUFFERED": "1",
            "CELERY_SKIP_CHECKS": "1",
        }
        if port:
            settings["AMENDS_URL"] = f"http://localhost:{port}"
        as_in_production = {"DATABASE_URL": as_runtime(owner)}
        return self.run(name, command, code=code, **settings | environment | as_in_production)


def database_answers(url: str) -> bool:
    """Only the database: a test that needs no worker starts none."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            body = answer.read()
    except HTTPError as error:
        body = error.read()
    except (OSError, HTTPException):
        return False
    return bool(json.loads(body)["checks"]["database"] == "ok")


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return bool(answer.status == 200)
    except (OSError, HTTPException):
        return False
