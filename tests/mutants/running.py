"""Running tests under a mutant, in a copy of the repository that nobody else uses."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg

from config.local.places import ROOT
from config.local.postgres import Postgres
from tests import servers
from tests.mutants.written import Mutant

SECONDS_MAX = 600
"""Then a mutant has made its tests hang, which somebody would notice."""

ENDING_SECONDS_MAX = 60
"""Then they do not end politely either: one such run held the whole list for three quarters of an
hour."""

SAID_MAX = 2_000
"""Characters of pytest's words that are kept, from their end."""

KILLED, SURVIVED, BROKEN = "killed", "survived", "broken"
VERDICTS = {0: SURVIVED, 1: KILLED}
"""By pytest's exit code. With any other the tests did not run at all, which proves nothing."""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant, after how many seconds; `said` is the end of pytest's own words."""

    mutant: Mutant
    outcome: str
    seconds: float
    said: str

    @property
    def by(self) -> str:
        """The test that noticed it, or nothing."""
        found = re.search(r"^(?:FAILED|ERROR) (\S+)", self.said, re.MULTILINE)
        return found[1] if found else ""

    @property
    def is_well(self) -> bool:
        """Whether it was noticed, or is known to be harmless."""
        return self.outcome == KILLED or (self.outcome == SURVIVED and bool(self.mutant.survives))


def copy(folder: Path) -> Path:
    """The repository's files in `folder`, as they are now; with packages and a migrated seed."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file() and not (ROOT / name).is_symlink():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    (folder / ".venv").symlink_to((ROOT / ".venv").resolve())
    servers.lend_seed(folder / ".local" / "test")
    return folder


LOOK_SQL = """
SELECT md5(string_agg(one, ',' ORDER BY one)) FROM (
    SELECT datname::text FROM pg_database
    UNION ALL SELECT row_to_json(r)::text FROM pg_roles r
    UNION ALL SELECT row_to_json(s)::text FROM pg_db_role_setting s
    UNION ALL SELECT row_to_json(s)::text FROM pg_file_settings s) found (one)"""
RUN = "test_main"
"""The database of a run, which it clones anew before it begins."""


class Kept:
    """A PostgreSQL for one mutant after the other, since starting one takes a third of a run.

    It is thrown away for a new one where a mutant left it otherwise than it was, or ended it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: Postgres | None = None
        self._number = 0
        self._fresh = ""

    def lend(self) -> Path:
        """The folder of a server that looks as a new one does."""
        if self._server is None or self._look() != self._fresh:
            self.stop()
            self._number += 1
            self._server = servers.start(self._folder / str(self._number))
            self._fresh = self._look()
        return self._folder / str(self._number)

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            shutil.rmtree(self._server.home, ignore_errors=True)
            self._server = None

    def _look(self) -> str:
        try:
            with psycopg.connect(self._server.url("postgres"), autocommit=True) as connection:
                connection.execute(f"DROP DATABASE IF EXISTS {RUN} WITH (FORCE)")
                return str(connection.execute(LOOK_SQL).fetchone())
        except psycopg.OperationalError:
            return "no answer"


def run(mutant: Mutant, folder: Path, kept: Kept | None = None) -> Verdict:
    """The mutant's tests under its change, in a copy; the copy is afterwards as it was."""
    file = folder / mutant.file
    before = file.read_text()
    begun = time.monotonic()
    settings = {}
    if kept is not None and not servers.shapes(folder / mutant.file):
        settings[servers.LENT] = str(kept.lend())
    file.write_text(mutant.applied(before))
    try:
        code, said = _pytest(mutant.tests, folder, settings)
    finally:
        file.write_text(before)
    outcome = VERDICTS.get(code, BROKEN)
    return Verdict(mutant, outcome, time.monotonic() - begun, said)


def _pytest(tests: tuple[str, ...], folder: Path, settings: Mapping[str, str]) -> tuple[int, str]:
    """pytest's exit code and the end of what it said; 1, too, where it came to no end."""
    passed = {"HOME", "PATH", "LANG", "TMPDIR"}
    environment = {name: value for name, value in os.environ.items() if name in passed}
    environment |= {"PYTHONPATH": str(folder / "sdk"), **settings}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    command += ["-m", "not chaos and not failclosed and not earnest"]  # also those of other targets
    with subprocess.Popen(
        [*command, *tests],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as pytest:
        try:
            said, _ = pytest.communicate(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            pytest.send_signal(signal.SIGINT)  # it ends its servers then
            try:
                said, _ = pytest.communicate(timeout=ENDING_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                pytest.kill()
                said, _ = pytest.communicate()
            return 1, f"no end within {SECONDS_MAX} s\n{said[-SAID_MAX:]}"
    return pytest.returncode, said[-SAID_MAX:]
