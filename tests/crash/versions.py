"""Another version of ours, beside the present one: what a rolling deploy has at work at once."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from config.local.places import ROOT

OLD = os.environ.get("CHAOS_OLD", "288642b")
"""The version that squashed the migrations. To be raised when a migration means that it can no
longer run beside the present one."""


OLD_BEHIND_A_POOLER = "f5904c0"
"""The same for a desk that is told of its pooler, which the other does not know."""


def old_code(folder: Path, version: str = OLD) -> Path:
    """That version, taken from the history into a folder; skips where there is no history."""
    home = folder / "old"
    home.mkdir()
    kept = subprocess.run(["git", "archive", version], check=False, capture_output=True, cwd=ROOT)
    if kept.returncode != 0:
        pytest.skip(f"There is no version {version} here: {kept.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", str(home)], check=True, input=kept.stdout)
    return home


def of_old(code: Path) -> dict[str, Any]:
    """How a process of the old version is started."""
    parts = (code, code / "sdk", code / "tests" / "outside" / "dist")
    return {"code": code, "PYTHONPATH": os.pathsep.join(map(str, parts))}
