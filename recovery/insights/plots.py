"""Plots: columns and lines as numbers for an SVG, drawn by the server, with no script and no style.

A plot is one picture with one sentence (`label`), and a table behind it for whoever wants numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from django.utils.safestring import SafeString, mark_safe

WIDTH, HEIGHT = 340, 76
GAP = 3
POINT = 6
LEAST_HEIGHT = 2
"""So that a column of one can be seen beside a column of ten thousand."""


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a column: a rectangle of a tone."""

    tone: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Plot:
    label: str
    first: str
    last: str
    columns: tuple[Part, ...] = ()
    lines: tuple[str, ...] = ()
    points: tuple[tuple[float, float], ...] = ()
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def bars(self) -> SafeString:
        """The columns as a picture has them: our own words and numbers, ninety to a page."""
        return mark_safe(  # noqa: S308 - nothing of it comes from outside
            "".join(
                f'<rect class="figure-{one.tone}" x="{one.x}" y="{one.y}" width="{one.width}"'
                f' height="{one.height}"></rect>'
                for one in self.columns
            )
        )


def columns(label: str, days: Sequence[date], *series: tuple[str, Sequence[int]]) -> Plot:
    """A column a day; each series is a tone and its numbers, stacked from below."""
    return bars(label, [_named(day) for day in days], *series)


def bars(label: str, names: Sequence[str], *series: tuple[str, Sequence[int]]) -> Plot:
    """A column for each name, of which the first and the last are told below."""
    highest = max(
        (sum(parts) for parts in zip(*(each for _, each in series), strict=True)), default=0
    )
    wide = WIDTH / max(len(names), 1)
    parts: list[Part] = []
    for at in range(len(names)):
        top = float(HEIGHT)
        for tone, numbers in series:
            if not numbers[at]:
                continue
            tall = max(numbers[at] / highest * HEIGHT, LEAST_HEIGHT)
            top -= tall
            x = round(at * wide, 1)
            parts.append(Part(tone, x, round(max(top, 0), 1), round(wide - GAP, 1), round(tall, 1)))
    return Plot(label, names[0], names[-1], columns=tuple(parts))


def _named(day: date) -> str:
    return f"{day:%b} {day.day}"


def line(label: str, days: Sequence[date], numbers: Sequence[float | None]) -> Plot:
    """A line through the days that have a number; days without break it, a lone day is a point."""
    highest = max((number for number in numbers if number is not None), default=0) or 1
    wide = WIDTH / max(len(days) - 1, 1)
    runs: list[list[tuple[float, float]]] = [[]]
    for at, number in enumerate(numbers):
        if number is None:
            runs.append([])
        else:
            y = HEIGHT - LEAST_HEIGHT - number / highest * (HEIGHT - 2 * LEAST_HEIGHT)
            runs[-1].append((round(at * wide, 1), round(y, 1)))
    drawn = [run for run in runs if len(run) > 1]
    lone = [run[0] for run in runs if len(run) == 1]
    return Plot(
        label,
        _named(days[0]),
        _named(days[-1]),
        lines=tuple(" ".join(f"{x},{y}" for x, y in run) for run in drawn),
        points=tuple((min(max(x - POINT / 2, 0), WIDTH - POINT), y - POINT / 2) for x, y in lone),
    )
