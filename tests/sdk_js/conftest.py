"""For programs in TypeScript: a desk that answers as it is told; and their client, to be asked."""

import json
import subprocess
from pathlib import Path

import pytest

from tests import npm
from tests.contract.desk import ScriptedDesk

VALUES = Path(__file__).parent / "agents" / "values.ts"


@pytest.fixture
def desk():
    desk = ScriptedDesk()
    desk.up()
    yield desk
    desk.down()


@pytest.fixture(scope="module")
def client():
    """Ask the client in TypeScript."""
    process = subprocess.Popen(
        [npm.NODE, VALUES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        encoding="utf-8",
    )  # fmt: skip

    def ask(do, **asked):
        process.stdin.write(json.dumps({"do": do, **asked}) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    yield ask
    process.communicate(timeout=20)
