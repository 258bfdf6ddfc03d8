"""Insights: plots that people can read, each with its numbers and a link to the cases behind it.

A section is a function of the workspace and the window that gives cards; approvals add theirs by
another entry in SECTIONS and a partial of their own beside templates/recovery/insights/.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from operator import itemgetter
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import HttpResponseBase
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET

from approvals import health
from ledger import disclosure
from ledger.models import Reversibility
from recovery import metrics
from recovery.casework import closing
from recovery.metrics import Window
from recovery.run_facts.sentences import plural
from recovery.views import close
from recovery.views.request_context import queue_url
from workspaces import exporting, formatting, replica
from workspaces.models import Agent, Workspace
from workspaces.pages import Request, page, workspace_or_404
from workspaces.plots import Plot, bars, columns, each_day, line, span

CARD = "recovery/insights/card.html"
CONNECTIONS_NAMED_MAX = 3
AGENTS_OFFERED_MAX = 200
TOOL_CHARACTERS_MAX = 200
EITHER = "is:open,closed"
AGE_QUERIES = (
    "age:<1h", "age:>1h age:<4h", "age:>4h age:<1d", "age:>1d age:<3d", "age:>3d age:<7d",
    "age:>7d age:<30d", "age:>30d",
)  # fmt: skip
"""What stands behind each of the metrics' AGES."""

Card = dict[str, Any]
FIGURES: exporting.Columns = {
    name: itemgetter(at) for at, name in enumerate(("figure", "of", "value", "more"))
}
GROUPS: exporting.Columns = {"failed": "failed", "open": "standing", "put_right": "recovered",
          "median_seconds": "median"}  # fmt: skip


class InsightsScope:
    """The workspace, the window, and how a figure's list is asked for: the same agent and tool."""

    def __init__(self, here: Workspace, window: Window, agent: Agent | None) -> None:
        self.here, self.window, self.agent = here, window, agent
        self.dates: list[date] = window.dates()
        self.cases = metrics.cases(here, window)

    def listed(self, q: str) -> str:
        """The queue with what is asked, and with the agent and the tool of the page."""
        also = [f"agent:{self.agent.name}"] if self.agent else []
        also += [f'failed_tool:"{self.window.tool}"'] if self.window.tool else []
        return f"{queue_url(self.here)}?{urlencode({'q': ' '.join([q, *also])})}"

    def since(self, key: str, q: str = EITHER) -> str:
        """The list of what happened in the window, by the key of its time."""
        return self.listed(f"{key}:>{self.dates[0]} {q}")

    def days(self, key: str, q: str, words: Callable[[int], str]) -> list[tuple[str, str]]:
        """What a click on each day opens, and its words. Of a day nothing has to be encoded, so the
        address of each is that of the first with its own day.
        """
        first = str(self.dates[0])
        before, _, after = self.listed(f"{key}:{first} {q}".strip()).partition(f"%3A{first}")
        return each_day(self.dates, lambda day: f"{before}%3A{day}{after}", words)


@login_required
@require_GET
@replica.reads
def insights(request: Request, workspace: str) -> HttpResponseBase:
    here = workspace_or_404(request, workspace)
    asked = request.GET
    agents = list(Agent.objects.filter(workspace=here).order_by("name")[:AGENTS_OFFERED_MAX])
    agent = next((one for one in agents if one.name == asked.get("agent")), None)
    days = next((one for one in metrics.RANGES if str(one) == asked.get("days")), None)
    tool = asked.get("tool", "")[:TOOL_CHARACTERS_MAX].replace('"', "").replace("\0", "")
    window = Window(days or metrics.WINDOW_DAYS, agent.pk if agent else None, tool)
    of = InsightsScope(here, window, agent)
    left = closing.residues_of(here).filter(done_at=None).order_by("due_at", "pk")
    residues = [close.residue_row(one) for one in left[: metrics.RESIDUES_MAX + 1]]
    by_agent, by_tool = of.cases.agents, of.cases.tools
    names = {one.pk: one.name for one in agents}
    cards = [card for section in SECTIONS for card in section(of)]
    if exporting.is_asked(request):
        numbers = [(card["title"], *line) for card in cards for line in card["told"]]
        name_of: exporting.Columns = {"agent": lambda one: names.get(one.agent or 0, "")}
        tables: dict[str, exporting.Table] = {
            "figures": (numbers, FIGURES),
            "by-agent": (by_agent, {**name_of, **GROUPS}),
            "by-tool": (by_tool, {"tool": "tool", **GROUPS}),
        }
        return exporting.table(request, tables, disclosure.cleaner(request.user, here))
    for place, card in enumerate(cards):
        is_asked = asked.get("numbers") == str(place)
        card["numbers_url"] = "" if is_asked else f"{_address(of)}&numbers={place}"
        if is_asked and request.htmx:
            return page(request, "recovery/insights/numbers.html", {"card": card})
    context = {
        "workspace": here,
        "days": window.days,
        "ranges": [
            {"name": f"{one} days", "url": _address(of, days=one), "current": one == window.days}
            for one in metrics.RANGES
        ],
        "narrow": {
            "url": request.path,
            "agents": [(one.name, one == agent) for one in agents],
            "tools": [(name, name == tool) for name in _tools(by_tool, tool)],
            "all_url": _address(of, agent="", tool="") if agent or tool else "",
        },
        "cards": cards,
        "groups": [
            _group(of, "agent", [(names.get(one.agent or 0, ""), one) for one in by_agent]),
            _group(of, "tool", [(one.tool or "", one) for one in by_tool]),
        ],
        "residues": residues[: metrics.RESIDUES_MAX],
        "residues_url": reverse("recovery:residues", args=[here.slug]),
        "residue_count": formatting.count(len(residues), metrics.RESIDUES_MAX),
    }
    return page(request, "recovery/insights.html", context)


def _tools(found: Sequence[metrics.CaseFigures], tool: str) -> list[str]:
    """Those that failed most, and the one that is asked for."""
    return sorted({one.tool for one in found if one.tool} | ({tool} if tool else set()))


def _address(of: InsightsScope, **changed: object) -> str:
    """This page with something else asked for."""
    asked = {
        "days": of.window.days,
        "agent": of.agent.name if of.agent else "",
        "tool": of.window.tool,
    } | changed
    kept = {name: value for name, value in asked.items() if value}
    return f"{reverse('recovery:insights', args=[of.here.slug])}?{urlencode(kept)}"


def _flow(of: InsightsScope) -> list[Card]:
    """What comes in, what goes out, how soon, and whether it can be undone."""
    whole, days, *_ = of.cases
    out, days_out = metrics.closed(of.here, of=of.window)
    return [
        _card(
            "Cases by day of failure",
            formatting.count(whole.failed, metrics.CASES_MAX),
            "failed",
            columns(
                f"{plural(whole.failed, 'case')} in {of.window.days} days,"
                f" {whole.standing} still open",
                of.dates,
                ("ok", [one.failed - one.standing for one in days]),
                ("bad", [one.standing for one in days]),
                places=of.days(
                    "failed",
                    EITHER,
                    lambda at: f"{days[at].failed} failed, {days[at].standing} still open",
                ),
            ),
            [(one.failed, f"{one.standing} open") for one in days],
            url=of.since("failed"),
            legend=[
                ("ok", "closed", whole.failed - whole.standing, of.since("failed", "is:closed")),
                ("bad", "still open", whole.standing, of.since("failed", "is:open")),
            ],
        ),
        _card(
            "Cases by day of closing",
            formatting.count(out.closed, metrics.CASES_MAX),
            "closed",
            columns(
                f"{plural(out.closed, 'case')} closed in {of.window.days} days,"
                f" {out.recovered} put right",
                of.dates,
                ("ok", [one.recovered for one in days_out]),
                ("calm", [one.closed - one.recovered for one in days_out]),
                places=of.days(
                    "closed",
                    "",
                    lambda at: f"{days_out[at].closed} closed, {days_out[at].recovered} put right",
                ),
            ),
            [(one.closed, f"{one.recovered} put right") for one in days_out],
            url=of.since("closed", ""),
            legend=[
                ("ok", "put right", out.recovered, of.since("closed", RECOVERED)),
                ("calm", "otherwise", out.closed - out.recovered, of.since("closed", OTHERWISE)),
            ],
        ),
        _ages(of),
        _times(of),
        _undoable(of),
    ]


RECOVERED = "outcome:restored,corrected"
OTHERWISE = "outcome:partly,resumed,expected,already_handled,duplicate"


def _ages(of: InsightsScope) -> Card:
    """How old it is that still waits, whenever it failed."""
    now = metrics.waiting(of.here, of=of.window)
    ages = [name for name, _ in metrics.AGES]
    return _card(
        "Open now, by age",
        formatting.count(now.count, metrics.OPEN_MAX),
        f"open · the oldest {span(now.oldest)}" if now.count else "nothing is open",
        bars(
            f"{plural(now.count, 'case')} open, by age",
            ages,
            ("bad", now.by_age),
            places=[
                (of.listed(f"is:open {q}"), f"{age}: {number} open")
                for q, age, number in zip(AGE_QUERIES, ages, now.by_age, strict=True)
            ],
        ),
        [(number, "") for number in now.by_age],
        url=of.listed("is:open"),
    ) | {"by": "Age"}


def _times(of: InsightsScope) -> Card:
    """How long it takes until what went wrong is put right, against what the policy allows."""
    whole, days, *_ = of.cases
    late = whole.recovered - whole.in_time
    goal = f" · goal {span(whole.allowed)}" if whole.allowed is not None else ""
    return _card(
        "Time to recover, median",
        span(whole.median),
        f"95 of 100 within {span(whole.p95)}{goal}"
        if whole.recovered
        else "no case of this time is recovered yet",
        line(
            f"Median time to recover by day of failure: {span(whole.median)}{goal}",
            of.dates,
            [one.median for one in days],
            goal=whole.allowed,
            places=of.days("failed", RECOVERED, lambda at: span(days[at].median)),
        ),
        [(span(one.median), f"95 of 100 within {span(one.p95)}") for one in days],
        url=of.since("failed", RECOVERED),
        legend=[
            ("ok", "in time", whole.in_time, of.since("failed", f"{RECOVERED} -is:late")),
            ("goal", "later than due", late, of.since("failed", f"{RECOVERED} is:late")),
        ],
    )


def _undoable(of: InsightsScope) -> Card:
    """What failed could be undone exactly, only made up for, or not at all."""
    whole, days, *_ = of.cases
    share = f"{whole.irreversible / whole.failed:.0%}".replace("%", " %") if whole.failed else "—"
    kinds = (
        ("ok", "exactly", Reversibility.EXACT, [one.exact for one in days]),
        ("calm", "made up for", Reversibility.COMPENSABLE, [one.compensable for one in days]),
        ("bad", "cannot", Reversibility.IRREVERSIBLE, [one.irreversible for one in days]),
        ("faint", "not known", Reversibility.UNKNOWN, [one.untold for one in days]),
    )
    return _card(
        "Can it be undone?",
        share,
        "cannot be undone" if whole.failed else "nothing failed",
        columns(
            f"{whole.exact} exactly, {whole.compensable} made up for, {whole.irreversible} not",
            of.dates,
            *((tone, numbers) for tone, _, _, numbers in kinds),
            places=of.days(
                "failed",
                EITHER,
                lambda at: (
                    f"{days[at].exact} exactly, {days[at].compensable} made up for,"
                    f" {days[at].irreversible} not"
                ),
            ),
        ),
        [(one.exact, f"{one.compensable} made up for, {one.irreversible} not") for one in days],
        url=of.since("failed", f"is:irreversible {EITHER}"),
        legend=[
            (tone, words, sum(numbers), of.since("failed", f"reversibility:{kind} {EITHER}"))
            for tone, words, kind, numbers in kinds
            if sum(numbers) or kind != Reversibility.UNKNOWN
        ],
    )


def _compensations(of: InsightsScope) -> list[Card]:
    """How often compensation runs, its success rate, and how long a call of it takes."""
    whole, days = metrics.steps(of.here, of=of.window)
    trouble = f"has:trouble {EITHER}"
    share = "—" if whole.success is None else f"{whole.success * 100:.1f}".removesuffix(".0") + " %"
    return [
        _card(
            "Compensations verified",
            share,
            f"of {plural(whole.settled, 'step')}" if whole.settled else "no step has ended yet",
            columns(
                f"{whole.verified} steps verified, {whole.need_person} need a person",
                of.dates,
                ("ok", [one.verified for one in days]),
                ("calm", [one.reported for one in days]),
                ("bad", [one.need_person for one in days]),
                places=of.days(
                    "started",
                    EITHER,
                    lambda at: (
                        f"{days[at].verified} verified, {days[at].need_person} need a person"
                    ),
                ),
            ),
            [(f"{one.verified} verified", f"{one.need_person} need a person") for one in days],
            url=of.since("started"),
            legend=[
                ("ok", "verified", whole.verified, of.since("started", f"has:verified {EITHER}")),
                ("calm", "reported", whole.reported, of.since("started", f"has:reported {EITHER}")),
                ("bad", "need a person", whole.need_person, of.since("started", trouble)),
            ],
        ),
        _card(
            "Plans started",
            formatting.count(whole.plans, metrics.PLANS_MAX),
            f"with {plural(whole.steps, 'step')}",
            columns(
                f"{whole.plans} plans in {of.window.days} days",
                of.dates,
                ("busy", [one.plans for one in days]),
                places=of.days("started", EITHER, lambda at: plural(days[at].plans, "plan")),
            ),
            [(one.plans, plural(one.steps, "step")) for one in days],
            url=of.since("started"),
        ),
        _call_times(of),
    ]


def _call_times(of: InsightsScope) -> Card:
    calls = metrics.unwinds(of.here, of=of.window)
    slowest = sorted(calls.by_connection.items(), key=lambda one: -one[1])
    return _card(
        "Compensating calls: 95 of 100 within",
        span(calls.p95),
        f"of {plural(calls.calls, 'call')}" if calls.calls else "no call was made yet",
        line(
            f"95 of 100 calls take no longer than {span(calls.p95)}",
            of.dates,
            [calls.by_day.get(day) for day in of.dates],
            places=of.days("started", EITHER, lambda at: span(calls.by_day.get(of.dates[at]))),
        ),
        [(span(calls.by_day.get(day)), "") for day in of.dates],
        url=f"/w/{of.here.slug}/connectors/",
        legend=[
            ("", name, span(p95), of.since("started", f"connector:{name} {EITHER}"))
            for name, p95 in slowest[:CONNECTIONS_NAMED_MAX]
        ],
    )


def _approvals(of: InsightsScope) -> list[Card]:
    """How long people take to decide; what that says about asking has a page of its own."""
    window = of.window
    whole, days = health.decision_times_of(
        of.here, days=window.days, agent=window.agent, tool=window.tool
    )
    times = {one.day: one.median_seconds for one in days}
    shown = [times.get(day) for day in of.dates]
    decided = reverse("approvals:history", args=[of.here.slug])
    note = f"of {plural(whole.asked - whole.waiting, 'question')}"
    note += f"; {formatting.count(whole.waiting)} more wait" if whole.waiting else ""
    also = [f"asked:{window.days}d", f"agent:{of.agent.name}" if of.agent else ""]
    also += [f'tool:"{window.tool}"' if window.tool else ""]

    def ended(*words: str) -> str:
        return f"{decided}?{urlencode({'q': ' '.join(filter(None, [*words, *also]))})}"

    return [
        _card(
            "Time to decide, median",
            span(whole.median_seconds),
            note if whole.asked else "nobody was asked yet",
            line(f"Median time to decide by day: {span(whole.median_seconds)}", of.dates, shown),
            [(span(one), "") for one in shown],
            url=reverse("approvals:health", args=[of.here.slug]),
            legend=[
                ("", "granted", whole.granted, ended("is:granted")),
                ("", "rejected", whole.rejected, ended("is:rejected")),
                ("", "expired", whole.expired, ended("is:expired")),
                ("", "withdrawn", whole.withdrawn, ended("is:withdrawn")),
            ],
        )
    ]


SECTIONS: tuple[Callable[[InsightsScope], Sequence[Card]], ...] = (
    _flow,
    _compensations,
    _approvals,
)


def _card(  # a card, told by its parts
    title: str,
    value: str,
    note: str,
    plot: Plot,
    numbers: Sequence[tuple[object, str]],
    *,
    url: str,
    legend: Sequence[tuple[str, str, object, str]] = (),
) -> Card:
    """`numbers`: of each of the plot's names the value and more of it; a legend's entry is the
    tone, the words, the number and where it leads.
    """
    return {
        "template": CARD,
        "title": title,
        "value": value,
        "note": note,
        "plot": plot,
        "legend": [
            {
                "tone": tone,
                "words": words,
                "number": formatting.count(number) if isinstance(number, int) else number,
                "url": address,
            }
            for tone, words, number, address in legend
        ],
        "numbers": partial(_lines, plot.names, numbers, plot.places),
        "told": [(name, *one) for name, one in zip(plot.names, numbers, strict=True)],
        "url": url,
    }


def _lines(
    names: Sequence[str],
    numbers: Sequence[tuple[object, str]],
    places: Sequence[tuple[str, str]],
) -> SafeString:
    """The lines of the table behind a plot, each leading where its column leads. Few unfold it, so
    a page is sent without; a template takes five times as long for each cell."""
    addresses = [url for url, _ in places] or [""] * len(names)
    return format_html_join(
        "",
        '<tr><th scope="row">{}</th><td>{}</td><td class="muted">{}</td></tr>',
        (
            (format_html('<a href="{}">{}</a>', url, name) if url else name, value, more)
            for url, name, (value, more) in zip(addresses, names, numbers, strict=True)
        ),
    )


def _group(
    of: InsightsScope, kind: str, found: Sequence[tuple[str, metrics.CaseFigures]]
) -> dict[str, Any]:
    """The table by agent or by tool; a bar is as long as its share of the longest."""
    most = max((one.failed for _, one in found), default=0) or 1
    key = "agent" if kind == "agent" else "failed_tool"

    def where(name: str, q: str) -> str:
        return of.since("failed", f'{key}:"{name}" {q}')

    return {
        "title": f"By {kind}",
        "kind": kind,
        "rows": [
            {
                "name": name,
                "url": _address(of, **{kind: name}),
                "failed": formatting.count(one.failed),
                "failed_url": where(name, EITHER),
                "share": round(100 * one.failed / most),
                "open_share": round(100 * one.standing / most),
                "standing": formatting.count(one.standing),
                "standing_url": where(name, "is:open"),
                "recovered": formatting.count(one.recovered),
                "recovered_url": where(name, RECOVERED),
                "median": span(one.median),
            }
            for name, one in found
            if name
        ],
    }
