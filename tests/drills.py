"""The table at the end of `make earnest`: what each drill did, and what was lost or done twice."""

from collections.abc import Callable

import pytest

ROWS: list[dict[str, str]] = []
Drilled = Callable[..., None]


@pytest.fixture
def drilled() -> Drilled:
    """Keep a row for the table: the drill's name, and its figures in words or numbers."""

    def keep(name: str, **figures: object) -> None:
        ROWS.append({"drill": name} | {key: str(figure) for key, figure in figures.items()})

    return keep


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not ROWS:
        return
    terminalreporter.section("drills")
    for row in ROWS:
        figures = (f"{key} {figure}" for key, figure in row.items() if key != "drill")
        terminalreporter.line(f"| {row['drill']} | {', '.join(figures)} |")
