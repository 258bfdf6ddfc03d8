"""Insights: plots that people can read, each with its numbers and a link to the cases behind it.

A section is a function of the workspace that gives cards; approvals add theirs by another entry in
SECTIONS and a partial of their own beside templates/recovery/insights/.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_GET

from approvals import health
from recovery import metrics
from recovery.run_facts.sentences import plural
from recovery.views.request_context import queue_url
from workspaces import formatting
from workspaces.models import Workspace
from workspaces.pages import Request, page, workspace_or_404

# Plots: columns and lines as numbers for an SVG, drawn by the server, with no script and no style.
#
# A plot is one picture with one sentence (`label`), and a table behind it for whoever wants
# numbers.

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


CARD = "recovery/insights/card.html"
CONNECTIONS_NAMED_MAX = 3
# Below this a tenth of a second is worth telling.
WHOLE_SECONDS_FROM = 10

Card = dict[str, Any]


@login_required
@require_GET
def insights(request: Request, workspace: str) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    residues = metrics.residues(here)
    context = {
        "workspace": here,
        "days": metrics.WINDOW_DAYS,
        "cards": [card for section in SECTIONS for card in section(here)],
        "residues": [
            {
                "text": one.text,
                "url": reverse("recovery:residue", args=[here.slug, one.pk]),
                "customer": one.case.customer_name or one.case.customer,
                "owner": str(one.owner),
                "due": formatting.ago(one.due_at),
            }
            for one in residues[: metrics.RESIDUES_MAX]
        ],
        "residues_url": reverse("recovery:residues", args=[here.slug]),
        "residue_count": formatting.count(len(residues), metrics.RESIDUES_MAX),
    }
    return page(request, "recovery/insights.html", context)


def _flow(here: Workspace) -> list[Card]:
    """What comes in, what goes out, and how old it is that still waits."""
    whole, days = metrics.cases(here)
    out, days_out = metrics.closed(here)
    now = metrics.waiting(here)
    dates = [one.day for one in days if one.day is not None]
    ages = [name for name, _ in metrics.AGES]
    return [
        _card(
            "Cases by day of failure",
            formatting.count(whole.failed, metrics.CASES_MAX),
            f"failed · {formatting.count(whole.standing)} still open",
            columns(
                f"{plural(whole.failed, 'case')} in {metrics.WINDOW_DAYS} days,"
                f" {whole.standing} still open",
                dates,
                ("ok", [one.failed - one.standing for one in days]),
                ("bad", [one.standing for one in days]),
            ),
            [(f"{one.day:%b %d}", f"{one.failed}", f"{one.standing} open") for one in days],
            url=_queue(here, "is:open"),
        ),
        _card(
            "Cases by day of closing",
            formatting.count(out.closed, metrics.CASES_MAX),
            f"closed · {formatting.count(out.recovered)} put right",
            columns(
                f"{plural(out.closed, 'case')} closed in {metrics.WINDOW_DAYS} days,"
                f" {out.recovered} put right",
                dates,
                ("ok", [one.recovered for one in days_out]),
                ("calm", [one.closed - one.recovered for one in days_out]),
            ),
            [
                (f"{one.day:%b %d}", f"{one.closed}", f"{one.recovered} put right")
                for one in days_out
            ],
            url=_queue(here, "is:closed"),
        ),
        _card(
            "Open now, by age",
            formatting.count(now.count, metrics.OPEN_MAX),
            f"the oldest {_span(now.oldest)}" if now.count else "nothing is open",
            bars(f"{plural(now.count, 'case')} open, by age", ages, ("bad", now.by_age)),
            [(age, f"{number}", "") for age, number in zip(ages, now.by_age, strict=True)],
            url=_queue(here, "is:open"),
        )
        | {"by": "Age"},
        _times(here, whole, days),
    ]


def _times(here: Workspace, whole: metrics.CaseDay, days: Sequence[metrics.CaseDay]) -> Card:
    """How long it takes until what went wrong is put right."""
    return _card(
        "Time to recover, median",
        _span(whole.median),
        f"p95 {_span(whole.p95)} · {formatting.count(whole.recovered)} recovered"
        if whole.recovered
        else "no case of this time is recovered yet",
        line(
            f"Median time to recover by day of failure: {_span(whole.median)}",
            [one.day for one in days if one.day is not None],
            [one.median for one in days],
        ),
        [(f"{one.day:%b %d}", _span(one.median), f"p95 {_span(one.p95)}") for one in days],
        url=_queue(here, "outcome:restored,corrected,partly"),
    )


def _compensations(here: Workspace) -> list[Card]:
    """How often compensation runs, its success rate, and how long a call of it takes."""
    whole, days = metrics.steps(here)
    calls = metrics.unwinds(here)
    dates = [one.day for one in days if one.day is not None]
    slowest = sorted(calls.by_connection.items(), key=lambda one: -one[1])
    named = " · ".join(f"{name} {_span(p95)}" for name, p95 in slowest[:CONNECTIONS_NAMED_MAX])
    share = "—" if whole.success is None else f"{whole.success * 100:.1f} %"
    return [
        _card(
            "Compensations verified",
            share,
            f"{formatting.count(whole.verified)} of {formatting.count(whole.settled)} steps"
            f" · {whole.need_person} need a person"
            if whole.settled
            else "no step has ended yet",
            columns(
                f"{whole.verified} steps verified, {whole.need_person} need a person",
                dates,
                ("ok", [one.verified for one in days]),
                ("calm", [one.reported for one in days]),
                ("bad", [one.need_person for one in days]),
            ),
            [
                (f"{one.day:%b %d}", f"{one.verified} verified", f"{one.need_person} need a person")
                for one in days
            ],
            url=_queue(here, "outcome:restored"),
        ),
        _card(
            "Plans started",
            formatting.count(whole.plans, metrics.PLANS_MAX),
            plural(whole.steps, "step"),
            columns(
                f"{whole.plans} plans in {metrics.WINDOW_DAYS} days",
                dates,
                ("busy", [one.plans for one in days]),
            ),
            [(f"{one.day:%b %d}", f"{one.plans}", plural(one.steps, "step")) for one in days],
            url=_queue(here, "state:recovering"),
        ),
        _card(
            "A compensating call, p95",
            _span(calls.p95),
            named or "no call was made yet",
            line(
                f"95 of 100 calls take no longer than {_span(calls.p95)}",
                dates,
                [calls.by_day.get(day) for day in dates],
            ),
            [(f"{day:%b %d}", _span(calls.by_day.get(day)), "") for day in dates],
            url=f"/w/{here.slug}/connectors/",
        ),
    ]


def _approvals(here: Workspace) -> list[Card]:
    """How long people take to decide; what that says about asking has a page of its own."""
    whole, days = health.decision_times_of(here, days=metrics.WINDOW_DAYS)
    today = timezone.now().date()
    dates = [today - timedelta(days=ago) for ago in reversed(range(metrics.WINDOW_DAYS))]
    times = {one.day: one.median_seconds for one in days}
    shown = [times.get(day) for day in dates]
    return [
        _card(
            "Time to decide, median",
            _span(whole.median_seconds),
            f"{whole.asked} asked · {whole.granted} granted · {whole.rejected} rejected"
            f" · {whole.expired} expired"
            if whole.asked
            else "nobody was asked yet",
            line(f"Median time to decide by day: {_span(whole.median_seconds)}", dates, shown),
            [(f"{day:%b %d}", _span(one), "") for day, one in zip(dates, shown, strict=True)],
            url=reverse("approvals:health", args=[here.slug]),
        )
    ]


SECTIONS: tuple[Callable[[Workspace], Sequence[Card]], ...] = (
    _flow,
    _compensations,
    _approvals,
)


def _card(  # a card, told by its parts
    title: str,
    value: str,
    note: str,
    plot: Plot,
    numbers: Sequence[tuple[str, str, str]],
    *,
    url: str,
) -> Card:
    return {
        "template": CARD,
        "title": title,
        "value": value,
        "note": note,
        "plot": plot,
        "numbers": _lines(numbers),
        "url": url,
    }


def _lines(numbers: Sequence[tuple[str, str, str]]) -> SafeString:
    """The lines of the table behind a plot; a template takes five times as long for each cell."""
    return mark_safe(  # noqa: S308 - each cell is escaped
        "".join(
            f'<tr><th scope="row">{escape(day)}</th><td>{escape(value)}</td>'
            f'<td class="muted">{escape(note)}</td></tr>'
            for day, value, note in numbers
        )
    )


def _queue(here: Workspace, q: str) -> str:
    return f"{queue_url(here)}?{urlencode({'q': q})}"


def _span(seconds: float | None) -> str:
    """18 min, 4.2 s, 420 ms; a dash where nothing was measured."""
    if seconds is None:
        return "—"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < WHOLE_SECONDS_FROM:
        return f"{seconds:.1f} s"
    return formatting.span(timedelta(seconds=float(seconds)))
