"""Each framework in an environment of its own, and an agent of it that is given calls to make.

Two of them run on Node: `ai`, and `typescript`, which is our client with no framework at all.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import zlib
from contextlib import suppress
from pathlib import Path

import pytest

from tests import npm
from tests.sdk.conftest import *  # noqa: F403 - the small desk, and the real one

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FRAMEWORKS = sorted(path.stem for path in (HERE / "environments").glob("*.lock"))
ON_NODE = ["ai", "typescript"]
LIGHT = {"pydantic_ai", *ON_NODE}
INSTALL_SECONDS_MAX = 540


def each(frameworks=(*FRAMEWORKS, *ON_NODE)):
    """The light ones in every run, the others with `make adapters`."""
    return [
        pytest.param(name, id=name, marks=[] if name in LIGHT else [pytest.mark.adapters])
        for name in frameworks
    ]


def outcomes(desk):
    """How each try ended."""
    return [
        one["data"].get("outcome", "made")
        for one in desk.journal()
        if one["type"] in ("action.failed", "action.succeeded")
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
            subprocess.run(make, check=True, timeout=INSTALL_SECONDS_MAX)
            install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                       "--no-input", "--require-hashes", "-r", lock]  # fmt: skip
            subprocess.run(install, check=True, timeout=INSTALL_SECONDS_MAX)
            stamp.write_text(wanted, "utf-8")
    return python


def command_of(framework, agents=HERE / "agents"):
    """What runs an agent of it. On Node it lies beside the client, as it would with its users."""
    if framework not in ON_NODE:
        return [environment_of(framework), agents / f"with_{framework}.py"]
    folder = npm.client() / f"agents-{agents.parent.name}"
    folder.mkdir(exist_ok=True)
    (folder / "package.json").write_text('{"type": "module"}', "utf-8")
    for source in agents.glob("*.ts"):
        copy = folder / f"{source.name}.{os.getpid()}"
        shutil.copy(source, copy)
        copy.rename(folder / source.name)  # another runner may be reading it
    return [npm.NODE, folder / f"with_{framework}.ts"]


def bare_environment(home, *more):
    """What an agent's process gets: nothing of whoever runs the tests, and no word to anybody."""
    folders = [ROOT / "sdk", HERE / "agents", *more]
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CREWAI_DISABLE_TELEMETRY": "true",
        "CREWAI_STORAGE_DIR": str(home),
        "OTEL_SDK_DISABLED": "true",
    }


class Agents:
    """Agents of one framework."""

    def __init__(self, framework, spool):
        self.name, self._spool = framework, spool
        self._command = command_of(framework)

    def start(self, url, key, calls, *, run="run_1", **more):
        """A process that plays these calls, to be ended with `end`."""
        asked = {"url": url, "key": key, "spool": str(self._spool), "run": run, "calls": calls}
        self._spool.parent.mkdir(exist_ok=True)
        return subprocess.Popen(
            [*self._command, json.dumps(asked | more)],
            cwd=self._spool.parent, env=bare_environment(self._spool.parent / "home"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def dies(self, process):
        """Until it has died by itself; a program that it started may ask its model on and on."""
        try:
            process.wait(timeout=180)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def end(self, process):
        """What ran, what the model was told, and the error that ended it."""
        try:
            out, err = process.communicate(timeout=180)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, err
        said = json.loads(out.splitlines()[-1])
        said["ran"] = [tuple(one) for one in said["ran"]]
        return said

    def plays(self, url, key, calls, **more):
        """Play these calls to their end."""
        return self.end(self.start(url, key, calls, **more))


@pytest.fixture
def agents(request, spool_file):
    return Agents(request.param, spool_file)
