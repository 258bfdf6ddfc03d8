"""Each adapter keeps to the types of its framework, which only its own environment has."""

import subprocess
import sys

import pytest

from tests.adapters.conftest import FRAMEWORKS, ROOT, each, environment_of

SETTINGS = "[mypy]\nstrict = True\nmypy_path = sdk\nexplicit_package_bases = True\n"
UNTYPED = "[mypy-smolagents.*]\nignore_missing_imports = True\n"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("framework", each(FRAMEWORKS))
def test_an_adapter_fits_its_framework(framework, tmp_path):
    settings = tmp_path / "mypy.ini"
    settings.write_text(SETTINGS + UNTYPED, "utf-8")
    command = [
        sys.executable, "-m", "mypy", "--config-file", settings, "--cache-dir", tmp_path / "cache",
        "--python-executable", environment_of(framework), "-m", f"amends.adapters.{framework}",
    ]  # fmt: skip

    done = subprocess.run(
        [str(word) for word in command], cwd=ROOT, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout
