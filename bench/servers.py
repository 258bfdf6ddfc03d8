"""The servers of the benchmarks: a durable PostgreSQL, a Valkey, and desks that can be asked.

One of each serves a whole run. Every desk has a database of its own, cloned from an empty one that
was migrated once, so that no measure sees what another left.
"""

import contextlib
import http.client
import json
import math
import os
import secrets
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import psycopg
from django.conf import settings

from config.local.places import ROOT, local_home
from config.local.postgres import Postgres
from config.local.servers import Valkey
from config.processes import process_list

READY_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 20.0
TEMPLATE = "amends_empty"
FOLDER = "AMENDS_BENCH_FOLDER"
VALKEY_DATABASES = 16
PLUGINS = ROOT / "bench" / "dist"
"""The installed package whose entry point offers the no-op connector, for benchmarks only."""


@dataclass
class Desk:
    """A desk on its own database; `environment` is what its processes see."""

    database_url: str
    environment: dict[str, str]
    folder: Path
    url: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, name: str, *more: str, port: int = 0) -> subprocess.Popen[bytes]:
        """One of the product's processes, as `make up` starts it."""
        command = process_list(port, "127.0.0.1", demo=False)[name] + list(more)
        log = (self.folder / f"{name}.log").open("ab")
        own = {"AMENDS_PROCESS": name, "TMPDIR": str(self.folder)}
        environment = os.environ | self.environment | own
        if port:
            environment["AMENDS_URL"] = f"http://localhost:{port}"
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        log.close()
        self.processes.append(process)
        return process

    def start_web(self) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.start("web", port=port)
        wait_for(f"{self.url}/healthz")

    def start_worker(self, *, concurrency: int = 2) -> None:
        """Messages wait until it is up, so nobody else need."""
        self.start("worker", "--concurrency", str(concurrency))

    def run(self, module: str, *arguments: str) -> dict[str, Any]:
        """`python -m MODULE` against this desk; its last line is JSON."""
        command = [sys.executable, "-W", "ignore", "-m", module, *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | self.environment, check=True, stdout=subprocess.PIPE
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()


@dataclass
class Servers:
    """PostgreSQL and Valkey, and the desks that were opened on them."""

    postgres: Postgres
    valkey: Valkey
    folder: Path
    desks: list[Desk] = field(default_factory=list)

    @contextlib.contextmanager
    def desk(self, name: str) -> Iterator[Desk]:
        """An empty, migrated desk; at the end its processes and its database are gone."""
        database = f"amends_{name}"
        self._administer(f'CREATE DATABASE "{database}" TEMPLATE "{TEMPLATE}"')
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        number = 1 + len(self.desks) % (VALKEY_DATABASES - 1)
        broker = f"{self.valkey.url}?db={number}"
        found = Desk(self.postgres.url(database), {}, folder)
        found.environment = self._environment(found.database_url, broker) | {FOLDER: str(folder)}
        self.desks.append(found)
        try:
            yield found
        finally:
            found.stop()
            self._administer(f'DROP DATABASE "{database}" WITH (FORCE)')

    def prepare(self) -> None:
        """The empty database from which every desk's is cloned."""
        url = self.postgres.ensure(TEMPLATE)
        migrate = [sys.executable, "-W", "ignore", "manage.py", "migrate", "-v", "0"]
        collect = [*migrate[:4], "collectstatic", "--no-input", "-v", "0"]
        for command in (migrate, collect):
            surroundings = os.environ | self._environment(url, self.valkey.url)
            subprocess.run(command, cwd=ROOT, check=True, env=surroundings)

    def _environment(self, database_url: str, redis_url: str) -> dict[str, str]:
        static = {"AMENDS_STATIC_ROOT": str(self.folder / "static")}
        return environment(database_url, redis_url) | static

    def _administer(self, statement: str) -> None:
        with psycopg.connect(self.postgres.url("postgres"), autocommit=True) as session:
            session.execute(statement)


@contextlib.contextmanager
def servers() -> Iterator[Servers]:
    """Servers in a folder of their own, removed afterwards; fsync is on."""
    folder: Path = local_home() / f"bench-{os.getpid()}"
    folder.mkdir(mode=0o700, parents=True)
    running = Servers(Postgres(folder), Valkey(folder), folder)
    try:
        running.postgres.start()
        running.valkey.start()
        running.prepare()
        yield running
    finally:
        running.valkey.stop()
        running.postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)


def own() -> Desk:
    """The desk that this process was started for: its environment names it."""
    return Desk(os.environ["DATABASE_URL"], {}, Path(os.environ[FOLDER]))


def environment(database_url: str, redis_url: str) -> dict[str, str]:
    return {
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "DATABASE_URL": database_url,
        "DATABASE_OWNER_URL": database_url,
        "REDIS_URL": redis_url,
        "AMENDS_URL": "http://localhost",
        "DJANGO_SECRET_KEY": secrets.token_hex(32),
        "AMENDS_SECRET_KEYS": urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "AMENDS_METRICS_TOKEN": secrets.token_hex(16),
        "AMENDS_LOG_LEVEL": "WARNING",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "sdk"), str(PLUGINS)]),
        "PYTHONUNBUFFERED": "1",
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(url: str) -> None:
    until = time.monotonic() + READY_SECONDS_MAX
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310 - our own process
                return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


ANSWER_SECONDS_MAX = 60.0
IDLE_SECONDS_MAX = 3.0
"""The server closes a connection that is idle for five seconds."""


@dataclass(frozen=True, slots=True)
class Made:
    """What was made, and how to come in."""

    slug: str
    runs: int
    cookie: str
    approver_cookie: str
    token: str
    case: int
    closed_case: int
    case_in_doubt: int
    run: str
    event: str
    approval: int
    seconds: float

    def page(self, path: str) -> str:
        return f"/w/{self.slug}/{path}"


@dataclass
class Browser:
    """A connection with a person's cookie; `took` is from the request to the answer's last byte."""

    url: str
    cookie: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        self._used = 0.0
        self._talk = http.client.HTTPConnection(
            str(parts.hostname), parts.port, timeout=ANSWER_SECONDS_MAX
        )

    def get(self, path: str) -> bytes:
        return self._get(path, (200,))[1]

    def took(self, path: str, expected: tuple[int, ...] = (200,)) -> float:
        """Milliseconds."""
        return self._get(path, expected)[0]

    def fetched(self, path: str) -> tuple[float, bytes]:
        """Milliseconds, and the page."""
        return self._get(path, (200,))

    def post(self, path: str, fields: dict[str, str]) -> None:
        """Send a form as a page of ours would."""
        token = secrets.token_hex(16)
        headers = {
            "cookie": f"{self.cookie}; {settings.CSRF_COOKIE_NAME}={token}",
            "content-type": "application/x-www-form-urlencoded",
            "x-csrftoken": token,
        }
        self._ask("POST", path, (200, 302), headers=headers, body=urlencode(fields))

    def _get(self, path: str, expected: tuple[int, ...]) -> tuple[float, bytes]:
        return self._ask("GET", path, expected, headers={"cookie": self.cookie})

    def _ask(
        self, method: str, path: str, expected: tuple[int, ...], **more: Any
    ) -> tuple[float, bytes]:
        if time.perf_counter() - self._used > IDLE_SECONDS_MAX:
            self._talk.close()
            self._talk.connect()
        begun = time.perf_counter()
        self._talk.request(method, path, **more)
        answer = self._talk.getresponse()
        body = answer.read()
        self._used = time.perf_counter()
        assert answer.status in expected, f"{path} answered {answer.status}"
        spent = 1_000 * (self._used - begun)
        return spent, body


def p95(values: Iterable[float]) -> float:
    """The value that 95 of 100 do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[math.ceil(0.95 * len(ordered)) - 1]


def median_of(rounds: Iterable[dict[str, float]]) -> dict[str, float]:
    """Key by key, the median of some rounds."""
    found = list(rounds)
    return {key: statistics.median([one[key] for one in found]) for key in found[0]}
