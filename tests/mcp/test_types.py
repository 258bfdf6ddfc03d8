"""The gateway keeps to the types of the protocol's package, which only its own environment has."""

import subprocess
import sys

import pytest

from tests.adapters.conftest import ROOT
from tests.adapters.test_types import SETTINGS
from tests.mcp.conftest import python


@pytest.mark.timeout(900)
def test_the_gateway_fits_the_protocols_package(tmp_path):
    settings = tmp_path / "mypy.ini"
    settings.write_text(SETTINGS, "utf-8")
    command = [
        sys.executable, "-m", "mypy", "--config-file", settings, "--cache-dir", tmp_path / "cache",
        "--python-executable", python(), "-p", "amends.mcp",
    ]  # fmt: skip

    done = subprocess.run(
        [str(word) for word in command], cwd=ROOT, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout
