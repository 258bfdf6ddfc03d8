"""F17 as it really comes: the disk below the database has no room left, and PostgreSQL says so.

The database is moved to a small file system in memory, which is then filled to the last byte. What
still fits on a page that is there is written; whatever needs a new page is refused. The write-ahead
log is the server's own and not of the database, so it stays where it was and has room.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connections

from tests.conftest import started
from tests.crash.catalogue import fault
from tests.crash.faults.database import FULL_SECONDS, half_done
from tests.crash.oracle import at_rest, rest, until
from tests.crash.storm import PLANS, Storm, administration

SIZE_BYTES = 160 * 2**20
"""Room for the database and what it grows by before it is filled."""

PIECE_BYTES = 2**16
REFUSED = "No space left on device"


@fault("F17 no room on the disk")
def no_room(storm: Storm) -> None:
    with small_disk(started["folder"] / f"small-{storm.seed}") as disk, living_on(disk, storm):
        before = refusals()
        for number in range(PLANS):  # none has ended before there is no room
            storm.outside.mischief(f"s{number}2", sleep_before=2)
        half_done(storm)
        with filled(disk):
            until(lambda: refusals() > before, 60, "PostgreSQL found no room")
            time.sleep(FULL_SECONDS)
            assert not at_rest(storm.plans)
        rest(storm.plans)


def refusals() -> int:
    log: Path = started["postgres"].home / "postgres.log"
    return log.read_text(errors="replace").count(REFUSED)


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A file system of that size; where nobody may mount one, the test is skipped and says why."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "amends-chaos", str(place)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        is_there, said = done.returncode == 0, done.stderr
    except OSError as error:
        is_there, said = False, str(error)
    if not is_there:
        place.rmdir()
        pytest.skip(f"no file system can be mounted here: {said.strip()}")
    try:
        yield place
    finally:
        away = ["umount", str(place)]
        if subprocess.run(away, check=False, capture_output=True).returncode:
            subprocess.run([*away, "--lazy"], check=True)
        place.rmdir()


@contextlib.contextmanager
def living_on(disk: Path, storm: Storm) -> Iterator[None]:
    """The test's database on that disk, and back where it was once nothing uses it any more."""
    home = disk / "tablespace"
    home.mkdir(mode=0o700)
    owner = started["postgres"].data.stat()
    os.chown(home, owner.st_uid, owner.st_gid)
    os.chown(disk, owner.st_uid, owner.st_gid)
    with administration() as session:
        session.execute(f"CREATE TABLESPACE small LOCATION '{home}'")
    try:
        move("small")
        yield
    finally:
        storm.processes.stop()
        move("pg_default")
        with administration() as session:
            session.execute("DROP TABLESPACE small")


def move(tablespace: str) -> None:
    connections.close_all()
    name = started["database"]
    with administration() as session:
        session.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
        )
        session.execute(f'ALTER DATABASE "{name}" SET TABLESPACE {tablespace}')


@contextlib.contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Nothing more fits on it."""
    balloon = disk / "balloon"
    piece = bytes(PIECE_BYTES)
    with contextlib.suppress(OSError), balloon.open("wb", buffering=0) as file:
        while os.write(file.fileno(), piece):
            pass
    try:
        yield
    finally:
        balloon.unlink()
