"""Fixtures for the tests of whoever has agents: a desk that says what the test wants it to say.

pytest finds them by itself where this package is installed. What they do is in `amends.testing`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import amends
from amends.testing import POLICY, ScriptedDesk

WAIT_SECONDS = 5.0


@pytest.fixture
def amends_spool(tmp_path: Path) -> Path:
    """A spool of the test's own."""
    return tmp_path / "amends" / "spool.sqlite"


@pytest.fixture
def amends_policy() -> Mapping[str, Any]:
    """The policy that it knows, which leaves everything to people. Have a fixture of this name that
    gives yours (`{"agentSafety": …}`), to assert plans by its twins.
    """
    return POLICY


@pytest.fixture
def amends_script(
    amends_spool: Path, amends_policy: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[ScriptedDesk]:
    """What the desk says, and was told; `amends.connect()` reaches it, over that spool."""
    script = ScriptedDesk(amends_policy)
    monkeypatch.setenv("AMENDS_URL", script.url)
    monkeypatch.setenv("AMENDS_KEY", script.key)
    monkeypatch.setenv("AMENDS_SPOOL", str(amends_spool))
    yield script
    script.close()


@pytest.fixture
def amends_desk(amends_script: ScriptedDesk, amends_spool: Path) -> Iterator[amends.Desk]:
    """Connected to it. A call waits for people no longer than a test would."""
    desk = amends.connect(
        amends_script.url, amends_script.key, spool=amends_spool, wait_seconds=WAIT_SECONDS,
        heeds_sigterm=False,
    )  # fmt: skip
    yield desk
    desk.close()
