"""Behind a real PgBouncer that takes sessions apart no process starts, and each says why."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from config import pooling
from config.local.places import ROOT
from config.processes import process_list
from tests.ports import free_port
from tests.processes import Processes
from tests.proxy import Proxy

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed (Debian: pgbouncer)"),
]

Pooler = Callable[..., str]


@pytest.fixture
def pooler(tmp_path: Path) -> Iterator[Pooler]:
    """Start one in front of the test's database; the URL that leads through it."""
    given = conninfo_to_dict(os.environ["DATABASE_URL"])
    running: list[subprocess.Popen[bytes]] = []
    with Proxy(f"{given['host']}/.s.PGSQL.{given.get('port') or 5432}") as postgres:

        def start(mode: str, ignored: str = "") -> str:
            port, config = free_port(), tmp_path / "pgbouncer.ini"
            config.write_text(
                f"[databases]\namends = host=127.0.0.1 port={postgres.port}"
                f" dbname={given['dbname']} user={given['user']}\n"
                f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n"
                f"unix_socket_dir =\npool_mode = {mode}\nignore_startup_parameters = {ignored}\n"
            )
            tmp_path.chmod(0o755)
            for parent in tmp_path.parents[:2]:
                parent.chmod(0o755)
            as_nobody = ["-u", "nobody"] if os.geteuid() == 0 else []
            command = [str(PGBOUNCER), "-q", *as_nobody, str(config)]
            running.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
            until_it_listens(port, running[-1])
            return f"postgresql://{given['user']}@127.0.0.1:{port}/amends"

        yield start
        for one in running:
            one.terminate()
            one.wait(30)


def until_it_listens(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert process.poll() is None, "PgBouncer ended"
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return


@pytest.mark.parametrize(
    ("mode", "ignored", "why"),
    [
        ("transaction", "", "refuses the options"),
        ("session", "", "refuses the options"),
        ("transaction", "options", "leaves out the options"),
        ("session", "options", "leaves out the options"),
    ],
)
def test_what_a_pooler_takes_away_is_found_and_said(
    pooler: Pooler, mode: str, ignored: str, why: str
) -> None:
    with pytest.raises(pooling.Pooled, match=why):
        pooling.check(pooler(mode, ignored))


def test_sessions_that_are_taken_apart_are_found_even_where_the_options_arrive(
    pooler: Pooler,
) -> None:
    """As behind a pooler that knows how to pass them on."""
    url = pooler("transaction")
    with (
        psycopg.connect(url, autocommit=True) as one,
        psycopg.connect(url, autocommit=True) as two,
        pytest.raises(pooling.Pooled, match="transaction mode"),
    ):
        pooling.check_sessions(one, two)


def test_postgresql_itself_is_taken() -> None:
    pooling.check(os.environ["DATABASE_URL"])


@pytest.mark.parametrize("name", ["web", "worker", "scheduler", "sweeper", "prepare"])
def test_no_process_starts_behind_one_and_it_says_what_to_do(
    pooler: Pooler, processes: Processes, name: str
) -> None:
    url = pooler("transaction", "options")
    commands = process_list(free_port(), "127.0.0.1", demo=False)
    commands["prepare"] = [sys.executable, "manage.py", "prepare"]
    process = processes.run(
        name, commands[name], AMENDS_PROCESS=name, DATABASE_URL=url, DATABASE_OWNER_URL=url,
        PYTHONPATH=os.pathsep.join([str(ROOT), str(ROOT / "sdk")]), CELERY_SKIP_CHECKS="1",
    )  # fmt: skip

    deadline = time.monotonic() + 90
    while process.alive() and time.monotonic() < deadline:
        time.sleep(0.2)

    assert not process.alive(), process.said()
    assert "Let DATABASE_URL" in process.said()
