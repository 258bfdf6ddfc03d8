"""The servers of a test run: one PostgreSQL for all its processes, one Valkey for each.

A migrated cluster is kept as a *seed*, named by what shapes it (migrations, models, packages). A
run copies the seed, starts it, and throws the copy away, so that two runs side by side cannot meet.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import psycopg
from psycopg import sql

from config.local.places import ROOT, local_home
from config.local.postgres import OWNER, RUNTIME, Postgres
from ledger import partitions, rights

TEMPLATE = "amends_template"
TELLING = {"track_commit_timestamp": "on"}
"""A test may ask when something was committed."""
FLOORS = ("workspaces", "ledger", "connectors", "approvals", "recovery", "config")
LENT = "AMENDS_TEST_SERVERS"
"""Names the folder of a PostgreSQL that somebody else has started for this run, and ends."""


def home() -> Path:
    return local_home() / "test"


ALONE = ("requirements/dev.lock", "config/settings.py", "tests/servers.py", "ledger/rights.py")


def shapes(source: Path) -> bool:
    """Whether a freshly migrated database looks otherwise where this file of ours does."""
    is_named = source.parent.name == "migrations" or "models" in str(source)
    return is_named or any(source.match(one) for one in ALONE)


def shape() -> str:
    """A digest of everything that decides how a freshly migrated database looks, this week."""
    digest = hashlib.sha256()
    sources = [ROOT / one for one in ALONE]
    for floor in FLOORS:
        sources += [one for one in sorted((ROOT / floor).rglob("*.py")) if shapes(one)]
    for source in sources:
        digest.update(str(source.relative_to(ROOT)).encode() + b"\0" + source.read_bytes())
    # Partitions are made a few weeks ahead: an older seed has none for those to come.
    digest.update(partitions.week_of(datetime.now(UTC)).name.encode())
    return digest.hexdigest()[:16]


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def grow(folder: Path) -> None:
    """Put a migrated cluster of the present shape there: a copy of the seed, built when new."""
    wanted = home() / f"seed-{shape()}"
    with only_one(home() / "seed.lock"):
        if not wanted.exists():
            for old in home().glob("seed-*"):
                shutil.rmtree(old)
            build(home() / "seed.new")
            (home() / "seed.new").rename(wanted)
        shutil.copytree(wanted / "postgres", folder / "postgres")
    (folder / "postgres").chmod(0o700)


def lend_seed(other_home: Path) -> None:
    """Put our seed into another checkout's home: it is the same for whoever changed no model."""
    with only_one(home() / "seed.lock"):
        for seed in home().glob("seed-*"):
            shutil.copytree(seed, other_home / seed.name)


def environment(database_url: str, redis_url: str) -> dict[str, str]:
    """What our settings read, in the tests' own process and in those that tests start."""
    return {
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "DATABASE_URL": database_url,
        "DATABASE_OWNER_URL": database_url,
        "REDIS_URL": redis_url,
        "AMENDS_URL": "http://localhost",
        "AMENDS_DEMO": "1",
        "AMENDS_HASHED_STATIC": "0",
        "DJANGO_SECRET_KEY": "only-for-tests-" + "0123456789abcdef" * 4,
        "AMENDS_SECRET_KEYS": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
        "AMENDS_METRICS_TOKEN": "",
    }


def as_runtime(url: str) -> str:
    """The same database, as the role that may not change the ledger."""
    return url.replace(f"://{OWNER}@", f"://{RUNTIME}@", 1)


def build(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    server = Postgres(folder, durable=False)
    server.start()
    try:
        url = server.ensure(TEMPLATE)
        server.ensure_role(RUNTIME)
        settings = os.environ | environment(url, "unix:///nowhere")
        command = [sys.executable, "-W", "ignore", str(ROOT / "manage.py"), "migrate", "-v", "0"]
        done = subprocess.run(
            command, env=settings, capture_output=True, text=True, check=False, timeout=300
        )
        if done.returncode != 0:
            raise RuntimeError(f"migrate failed\n{done.stdout}\n{done.stderr}")
        with psycopg.connect(url) as connection:
            rights.grant(connection.cursor(), RUNTIME)
    finally:
        server.stop()


def start(folder: Path, *, durable: bool = False) -> Postgres:
    """A running copy of the seed in this folder; its migrated database is TEMPLATE."""
    forget_old_runs()
    folder.mkdir(mode=0o700, parents=True)
    grow(folder)
    server = Postgres(folder, durable=durable, settings=TELLING)
    server.start()
    return server


def forget_old_runs() -> None:
    """Remove what runs left that were killed: their folder is named by their process."""
    for folder in home().glob("run-*"):
        pid = int(folder.name.removeprefix("run-"))
        if not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)


# Every clone counts its ids from here on, times its number: an id never comes again within a run,
# so that a process which outlives a test cannot mistake the next one's rows for those it knew.
IDS_APART = 10_000
IDS_APART_SQL = """
    SELECT setval(format('%%I.%%I', schemaname, sequencename)::regclass, %s)
    FROM pg_sequences WHERE data_type <> 'smallint'::regtype
"""


TABLES_SQL = """
SELECT format('%I', c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1"""
SHAPE_SQL = """
SELECT format('%s relations, %s', count(*), sum(hashtext(relname::text))) FROM pg_class
WHERE relnamespace = 'public'::regnamespace"""


class Fresh(NamedTuple):
    """How a database looks when it was just cloned: its tables, and which of them are empty."""

    shape: str
    empty: list[str]


def look(url: str) -> Fresh:
    with psycopg.connect(url, autocommit=True) as connection:
        names = [name for (name,) in connection.execute(TABLES_SQL)]
        count = " UNION ALL ".join(
            f"SELECT {number} WHERE NOT EXISTS (SELECT FROM {name})"
            for number, name in enumerate(names)
        )
        empty = [names[number] for (number,) in connection.execute(count)]
        shape = connection.execute(SHAPE_SQL).fetchone()
        return Fresh(str(shape), empty)


# Over a connection that is kept, which knows the tables already: a new one spends most of its time
# on finding out about them. Triggers are off in it, for the ledger's own refuse: one that turns
# them off for a moment forgets each time how its statements go.
_cleaning: list[psycopg.Connection[tuple[object, ...]]] = []
PAST_TRIGGERS = "-c session_replication_role=replica -c lock_timeout=2s"
EMPTYING = """
CREATE FUNCTION pg_temp.empty_all() RETURNS void LANGUAGE plpgsql AS $$BEGIN {}; END$$"""


# The server processes of connections that stay from story to story, for the same reason.
spared: dict[str, list[int]] = {}
_endings: list[Callable[[], None]] = []


def at_the_end(function: Callable[[], None]) -> Callable[[], None]:
    """Called before the servers of this run are stopped."""
    _endings.append(function)
    return function


def end() -> None:
    stop_cleaning()
    while _endings:
        _endings.pop()()


def stop_cleaning() -> None:
    while _cleaning:
        _cleaning.pop().close()


def past_triggers(url: str, names: list[str]) -> psycopg.Connection[tuple[object, ...]]:
    """The kept connection, whose statements no trigger hears; it can empty the tables named."""
    if not _cleaning:
        _cleaning.append(psycopg.connect(url, autocommit=True, options=PAST_TRIGGERS))
        delete = "; ".join(f"DELETE FROM {name}" for name in names)
        _cleaning[0].execute(EMPTYING.format(delete))
    return _cleaning[0]


def empty(url: str, fresh: Fresh) -> bool:
    """Delete what a test has committed: twenty times quicker than a new clone.

    Answers False where that is not enough: the test has changed tables, or somebody holds on to
    rows.
    """
    try:
        return _empty(url, fresh)
    except psycopg.OperationalError:  # the test cut our connection too, or stopped the server
        stop_cleaning()
        return _empty(url, fresh)


def _empty(url: str, fresh: Fresh) -> bool:
    connection = past_triggers(url, fresh.empty)
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND pid <> ALL(%s)",
        [[pid for pids in spared.values() for pid in pids]],
    )
    if str(connection.execute(SHAPE_SQL).fetchone()) != fresh.shape:
        return False
    try:
        connection.execute("SELECT pg_temp.empty_all()")
    except psycopg.OperationalError:  # not in time, or each waited for the other
        return False
    return True


def clone(administration_url: str, name: str, *, number: int = 0) -> None:
    """Make database `name` anew from the template, whoever is still connected to the old one."""
    stop_cleaning()
    with psycopg.connect(administration_url, autocommit=True) as connection:
        target = sql.Identifier(name)
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(target))
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY").format(
                target, sql.Identifier(TEMPLATE)
            )
        )
    if number:
        url = administration_url.replace("/postgres?", f"/{name}?")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(IDS_APART_SQL, [number * IDS_APART])
