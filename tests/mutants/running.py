"""Running tests under a mutant, in a copy of the repository that nobody else uses."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from config.local.places import ROOT
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


def run(mutant: Mutant, folder: Path) -> Verdict:
    """The mutant's tests under its change, in a copy; the copy is afterwards as it was."""
    file = folder / mutant.file
    before = file.read_text()
    begun = time.monotonic()
    file.write_text(mutant.applied(before))
    try:
        code, said = _pytest(mutant.tests, folder)
    finally:
        file.write_text(before)
    outcome = VERDICTS.get(code, BROKEN)
    return Verdict(mutant, outcome, time.monotonic() - begun, said)


def _pytest(tests: tuple[str, ...], folder: Path) -> tuple[int, str]:
    """pytest's exit code and the end of what it said; 1, too, where it came to no end."""
    settings = {"HOME", "PATH", "LANG", "TMPDIR"}
    environment = {name: value for name, value in os.environ.items() if name in settings}
    environment |= {"PYTHONPATH": str(folder / "sdk"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
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
