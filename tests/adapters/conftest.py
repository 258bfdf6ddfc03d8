"""Each framework in an environment of its own, and an agent of it that is given calls to make."""

import fcntl
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.sdk.conftest import *  # noqa: F403 - the small desk, and the real one

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FRAMEWORKS = sorted(path.stem for path in (HERE / "environments").glob("*.lock"))
LIGHT = {"pydantic_ai"}
INSTALL_SECONDS_MAX = 540


def each(frameworks=FRAMEWORKS):
    """The light ones in every run, the others with `make adapters`."""
    return [
        pytest.param(name, id=name, marks=[] if name in LIGHT else [pytest.mark.adapters])
        for name in frameworks
    ]


def environment_of(framework, locks=HERE / "environments"):
    """Python with the framework as it is locked; made once, in .venv, and kept."""
    lock = locks / f"{framework}.lock"
    folder = ROOT / ".venv" / "adapters" / framework
    python, stamp = folder / "bin" / "python", folder / "installed"
    wanted = str(zlib.crc32(lock.read_bytes()))
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / f"{framework}.turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # two runners of one run want the same
        if not stamp.exists() or stamp.read_text("utf-8") != wanted:
            make = [sys.executable, "-m", "venv", "--clear", folder]
            subprocess.run(make, check=True, timeout=60)
            install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                       "--no-input", "--require-hashes", "-r", lock]  # fmt: skip
            subprocess.run(install, check=True, timeout=INSTALL_SECONDS_MAX)
            stamp.write_text(wanted, "utf-8")
    return python


class Agents:
    """Agents of one framework."""

    def __init__(self, framework, spool):
        self.name, self._spool = framework, spool
        self._python = environment_of(framework)

    def plays(self, url, key, calls, *, run="run_1", **more):
        """Play these calls; what ran, what the model was told, and the error that ended it."""
        asked = {"url": url, "key": key, "spool": str(self._spool), "run": run, "calls": calls}
        done = subprocess.run(
            [self._python, HERE / "agents" / f"with_{self.name}.py", json.dumps(asked | more)],
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'sdk'}"},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout.splitlines()[-1])
        said["ran"] = [tuple(one) for one in said["ran"]]
        return said


@pytest.fixture
def agents(request, spool_file):
    return Agents(request.param, spool_file)
