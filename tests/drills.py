"""The table at the end of `make earnest`: what each drill did, and what was lost or done twice.

Each test of it keeps a row, and each row has its place in docs/running.md; what was skipped is said
there as well, with its reason.
"""

import time
from collections.abc import Callable

import pytest

from config.local.places import ROOT

ROWS: list[list[str]] = []
COLUMNS = ("drill", "what happened", "lost", "twice")
Drilled = Callable[..., None]


@pytest.fixture
def drilled() -> Drilled:
    """Keep a row for the table: the drill's name, and its figures in words or numbers."""
    began = time.monotonic()

    def keep(name: str, *, lost: int = 0, twice: int = 0, **figures: object) -> None:
        figures["minutes"] = round((time.monotonic() - began) / 60, 1)
        what = ", ".join(f"{key.replace('_', ' ')} {figure}" for key, figure in figures.items())
        ROWS.append([name, what, str(lost), str(twice)])
        assert f"| {name} |" in (ROOT / "docs" / "running.md").read_text(), name

    return keep


def each_has_a_row(items: list[pytest.Item]) -> None:
    """Raises UsageError where a drill is collected that keeps none."""
    for item in items:
        if item.get_closest_marker("earnest") and "drilled" not in getattr(
            item, "fixturenames", ()
        ):
            raise pytest.UsageError(f"{item.nodeid} is a drill and takes no `drilled`")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not ROWS:
        return
    terminalreporter.section("drills")
    for row in (COLUMNS, ["---"] * len(COLUMNS), *ROWS):
        terminalreporter.line(f"| {' | '.join(row)} |")
    for skipped in terminalreporter.stats.get("skipped", []):
        terminalreporter.line(f"| {skipped.nodeid.rpartition('::')[2]} | {skipped.longrepr[2]} |")
