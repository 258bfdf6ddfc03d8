"""A real PgBouncer in front of the test's database (Debian: `pgbouncer`)."""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from config.pooling import LIMITS
from tests.ports import free_port
from tests.proxy import Proxy

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
needed = pytest.mark.skipif(
    PGBOUNCER is None, reason="PgBouncer is not installed (Debian: pgbouncer)"
)
ROOT = Path(__file__).parents[1]
SESSIONS = 12
"""Of each role. The desk behind it asks for three times that."""

Pooler = Callable[..., str]


def keeps_prepared() -> bool:
    """From 1.21 on, if told how many (`max_prepared_statements`)."""
    said = subprocess.run([str(PGBOUNCER), "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"PgBouncer (\d+)\.(\d+)", said.stdout)
    assert found, said.stdout
    return (int(found[1]), int(found[2])) >= (1, 21)


@pytest.fixture
def pooler(tmp_path: Path) -> Iterator[Pooler]:
    """Start one in front of the test's database; the URL that leads through it."""
    given = conninfo_to_dict(os.environ["DATABASE_URL"])
    running: list[subprocess.Popen[bytes]] = []
    with Proxy(f"{given['host']}/.s.PGSQL.{given.get('port') or 5432}") as postgres:

        def start(
            mode: str, ignored: str = "", limits: str = "", prepared: int = 0, also_at: str = ""
        ) -> str:
            port, config = free_port(), tmp_path / "pgbouncer.ini"
            connect = f" connect_query='{limits}'" if limits else ""
            listens = f"127.0.0.1,{also_at}" if also_at else "127.0.0.1"
            # deploy/pooler/pgbouncer.ini, with other addresses and fewer sessions.
            ours = ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=(";",))
            ours.read(ROOT / "deploy" / "pooler" / "pgbouncer.ini")
            ours["databases"]["amends"] = (
                f"host=127.0.0.1 port={postgres.port} dbname={given['dbname']}{connect}"
            )
            ours["pgbouncer"].update({
                "listen_addr": listens, "listen_port": str(port), "unix_socket_dir": "",
                "auth_type": "trust", "auth_file": f"{tmp_path}/users",
                "pool_mode": mode, "ignore_startup_parameters": ignored,
                "default_pool_size": str(SESSIONS), "admin_users": str(given["user"]),
            })  # fmt: skip
            if prepared:
                ours["pgbouncer"]["max_prepared_statements"] = str(prepared)
            with config.open("w") as file:
                ours.write(file)
            (tmp_path / "users").write_text(f'"{given["user"]}" ""\n"amends_desk" ""\n')
            tmp_path.chmod(0o755)
            for parent in tmp_path.parents[:2]:
                parent.chmod(0o755)
            as_nobody = ["-u", "nobody"] if os.geteuid() == 0 else []
            command = [str(PGBOUNCER), "-q", *as_nobody, str(config)]
            running.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
            until_it_listens(port, running[-1])
            return f"postgresql://{given['user']}@{also_at or '127.0.0.1'}:{port}/amends"

        yield start
        for one in running:
            one.kill()  # from 1.23 on SIGTERM waits for those who are connected
            one.wait(30)


@pytest.fixture
def named_pooler(pooler: Pooler) -> Callable[..., dict[str, str]]:
    """The environment of a desk that is told of its pooler, which runs as the guide has it."""

    def environment(*, prepared: int = 0, also_at: str = "") -> dict[str, str]:
        url = pooler("transaction", limits=LIMITS, prepared=prepared, also_at=also_at)
        return {
            "DATABASE_URL": url,
            "DATABASE_OWNER_URL": os.environ["DATABASE_URL"],
            "AMENDS_POOLER": "1",
            "AMENDS_PREPARE_AFTER": "2" if prepared else "0",
        }

    return environment


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


def sessions_of(url: str) -> tuple[int, int]:
    """How many the desk has with the pooler, and the pooler with PostgreSQL."""
    admin = url.removesuffix("amends") + "pgbouncer"
    connection = psycopg.connect(admin, autocommit=True, prepare_threshold=None)
    try:
        cursor = psycopg.ClientCursor(connection)
        ours = [row for row in cursor.execute("SHOW CLIENTS") if "amends" in row]
        lent = [row for row in cursor.execute("SHOW SERVERS") if "amends" in row]
    finally:
        connection.close()
    return len(ours), len(lent)
