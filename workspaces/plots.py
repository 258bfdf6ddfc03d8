"""Plots: columns and lines as numbers for an SVG, with axes that people can read.

Drawn by the server, with no script and no style. A plot is one picture with one sentence
(`label`), a place to click for each of its names, and a table behind it for whoever wants numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from html import escape
from typing import ClassVar

from django.utils.safestring import SafeString, mark_safe

from workspaces import formatting

WIDTH, HEIGHT = 340, 96
GAP_SHARE = 0.22
"""Of a column's width."""
POINT = 6
LEAST_HEIGHT = 2
"""So that a column of one can be seen beside a column of ten thousand."""
TICKS = 4
"""Names under a plot of days; a plot of few names has them all."""
NAMES_MAX = 8
CUTS_MAX = 2
CUT_ABOVE = 4
"""A column or two that are so many times the axis of all others go beyond it: uncut they would
flatten those, which are what a plot is for."""
OTHERS_MIN = 3
BREAK = 5
GOAL_ABOVE_MAX = 2.5
"""A goal that is further above all values would flatten them: the words tell it alone."""
# Below this a tenth of a second is worth telling.
WHOLE_SECONDS_FROM = 10

MINUTE, HOUR, DAY = 60, 3600, 86400
ROUND_SECONDS = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 4, 10, 20, 30, MINUTE, 2 * MINUTE, 4 * MINUTE,
    10 * MINUTE, 20 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, 12 * HOUR, DAY,
    2 * DAY, 4 * DAY, 8 * DAY, 14 * DAY, 30 * DAY, 60 * DAY,
)  # fmt: skip
ROUND_COUNTS = (2, 4, 6, 8, 10)


@dataclass(frozen=True, slots=True)
class BarSegment:
    """One piece of a column: a rectangle of a tone."""

    tone: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Plot:
    """`heights` are the words of the axis, the highest first; `names` are those of the columns.
    `beyond` says of each column that is cut how high it would be.

    `places` are what a click on a name opens: its address and its words.
    """

    label: str
    names: tuple[str, ...]
    heights: tuple[str, ...]
    columns: tuple[BarSegment, ...] = ()
    lines: tuple[str, ...] = ()
    points: tuple[tuple[float, float], ...] = ()
    goal: float | None = None
    places: tuple[tuple[str, str], ...] = ()
    beyond: tuple[str, ...] = ()
    width: ClassVar = WIDTH
    height: ClassVar = HEIGHT

    @property
    def has_few(self) -> bool:
        """Whether each name has room below its column."""
        return len(self.names) <= NAMES_MAX

    @property
    def ticks(self) -> Sequence[str]:
        """All of few names; of many the first, the last, and some between at even distances."""
        if self.has_few:
            return self.names
        last = len(self.names) - 1
        return [self.names[round(at * last / (TICKS - 1))] for at in range(TICKS)]

    @property
    def drawn(self) -> SafeString:
        """The picture's inside: our own words and numbers, ninety columns to a page."""
        floor = "".join(
            f'<line class="figure-floor" x1="0" x2="{self.width}" y1="{y}" y2="{y}"></line>'
            for y in (0, self.height / 2, self.height)
        )
        bars = "".join(
            f'<rect class="figure-{one.tone}" x="{one.x}" y="{one.y}" width="{one.width}"'
            f' height="{one.height}"></rect>'
            for one in self.columns
        )
        lines = "".join(
            f'<polyline class="figure-line" points="{one}"></polyline>' for one in self.lines
        )
        points = "".join(
            f'<rect class="figure-busy" x="{x}" y="{y}" width="{POINT}" height="{POINT}"></rect>'
            for x, y in self.points
        )
        goal = (
            ""
            if self.goal is None
            else f'<line class="figure-goal" x1="0" x2="{self.width}" y1="{self.goal}"'
            f' y2="{self.goal}"></line>'
        )
        return mark_safe(  # noqa: S308 - numbers, and places that are escaped
            f"{floor}{bars}{lines}{points}{goal}{self._places}"
        )

    @property
    def _places(self) -> str:
        """A strip over each name, from floor to top: as easy to hit for one case as for many."""
        wide = self.width / max(len(self.places), 1)
        return "".join(
            f'<a class="figure-place" href="{escape(url)}" tabindex="-1" aria-hidden="true">'
            f"<title>{escape(words)}</title>"
            f'<rect x="{round(at * wide, 1)}" y="0" width="{round(wide, 1)}"'
            f' height="{self.height}"></rect></a>'
            for at, (url, words) in enumerate(self.places)
        )


def columns(
    label: str,
    days: Sequence[date],
    *series: tuple[str, Sequence[int]],
    places: Sequence[tuple[str, str]] = (),
) -> Plot:
    """A column a day; each series is a tone and its numbers, stacked from below."""
    return bars(label, [named(day) for day in days], *series, places=places)


def bars(
    label: str,
    names: Sequence[str],
    *series: tuple[str, Sequence[int]],
    places: Sequence[tuple[str, str]] = (),
) -> Plot:
    """A column for each name."""
    sums = [sum(parts) for parts in zip(*(each for _, each in series), strict=True)]
    top_of_axis = _top_of_axis(sums)
    wide = WIDTH / max(len(names), 1)
    parts: list[BarSegment] = []
    for at in range(len(names)):
        top, whole = float(HEIGHT), max(top_of_axis, sums[at])
        for tone, numbers in series:
            if not numbers[at]:
                continue
            tall = max(numbers[at] / whole * HEIGHT, LEAST_HEIGHT)
            top -= tall
            x = round((at + GAP_SHARE / 2) * wide, 1)
            parts.append(
                BarSegment(
                    tone, x, round(max(top, 0), 1), round(wide * (1 - GAP_SHARE), 1), round(tall, 1)
                )
            )
        if sums[at] > top_of_axis:
            parts.append(BarSegment("break", round(at * wide, 1), BREAK, round(wide, 1), BREAK))
    return Plot(
        label,
        tuple(names),
        (formatting.count(top_of_axis), formatting.count(top_of_axis // 2), "0"),
        columns=tuple(parts),
        places=tuple(places),
        beyond=tuple(
            f"{name}: {formatting.count(number)}"
            for name, number in zip(names, sums, strict=True)
            if number > top_of_axis
        ),
    )


def line(
    label: str,
    days: Sequence[date],
    numbers: Sequence[float | None],
    *,
    goal: float | None = None,
    places: Sequence[tuple[str, str]] = (),
) -> Plot:
    """A line of seconds through the days that have a number; days without break it, a lone day is
    a point. `goal`: seconds, drawn where it does not lie far above everything.
    """
    highest = max((number for number in numbers if number is not None), default=0)
    is_near = goal is not None and goal <= highest * GOAL_ABOVE_MAX
    top_of_axis = _round_seconds(max(highest, goal or 0) if is_near else highest)
    wide = WIDTH / max(len(days), 1)
    runs: list[list[tuple[float, float]]] = [[]]
    for at, number in enumerate(numbers):
        if number is None:
            runs.append([])
        else:
            runs[-1].append((round((at + 0.5) * wide, 1), _height_of(number, top_of_axis)))
    drawn = [run for run in runs if len(run) > 1]
    lone = [run[0] for run in runs if len(run) == 1]
    return Plot(
        label,
        tuple(named(day) for day in days),
        (span(top_of_axis), span(top_of_axis / 2), "0") if highest else ("", "", "0"),
        lines=tuple(" ".join(f"{x},{y}" for x, y in run) for run in drawn),
        points=tuple((min(max(x - POINT / 2, 0), WIDTH - POINT), y - POINT / 2) for x, y in lone),
        goal=_height_of(goal, top_of_axis) if goal is not None and is_near else None,
        places=tuple(places),
    )


def _height_of(seconds: float, top_of_axis: float) -> float:
    return round(HEIGHT - LEAST_HEIGHT - seconds / top_of_axis * (HEIGHT - 2 * LEAST_HEIGHT), 1)


def _top_of_axis(sums: Sequence[int]) -> int:
    """That of the highest column, or of the others where few columns dwarf them."""
    ordered = sorted((one for one in sums if one), reverse=True)
    for cut in range(CUTS_MAX, 0, -1):
        others = ordered[cut:]
        if len(others) < OTHERS_MIN:
            continue
        top = _round_count(others[0])
        if ordered[cut - 1] > CUT_ABOVE * top:
            return top
    return _round_count(ordered[0] if ordered else 0)


def _round_count(highest: int) -> int:
    """The top of an axis, whose half is a whole number: 2, 4, 6, 8, 10, 20, 40 …"""
    magnitude = 1
    while True:
        for one in ROUND_COUNTS:
            if one * magnitude >= highest:
                return one * magnitude
        magnitude *= 10


def _round_seconds(highest: float) -> float:
    return next((one for one in ROUND_SECONDS if one >= highest), highest) or 1


def named(day: date) -> str:
    return f"{day:%b} {day.day}"


def span(seconds: float | None) -> str:
    """18 min, 4.2 s, 420 ms; a dash where nothing was measured."""
    if seconds is None:
        return "—"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < WHOLE_SECONDS_FROM and seconds % 1:
        return f"{seconds:.1f} s"
    return formatting.span(timedelta(seconds=float(seconds)))


def each_day(
    days: Sequence[date], address: Callable[[date], str], words: Callable[[int], str]
) -> list[tuple[str, str]]:
    """What a click on each day opens, and what is said over it."""
    return [(address(day), f"{named(day)}: {words(at)}") for at, day in enumerate(days)]
