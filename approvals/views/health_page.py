"""Whether asking people is still worth something, which broken glasses nobody has looked at, and
what is proposed of the policy: looked at with its dry run, saved as a version."""

from datetime import date, timedelta
from operator import itemgetter
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods

from approvals import dry_run, glass_decisions, health, proposals, versions
from approvals.policy import Invalid, PolicyUnreadable, active, load
from approvals.policy.reading import read
from approvals.proposals import TIGHTER, Proposal
from approvals.views.lists import views_of
from ledger import disclosure
from workspaces import exporting, formatting, replica
from workspaces.access import may
from workspaces.free_text import NOTE_CHARACTERS_MAX, InvalidInput
from workspaces.models import User, Workspace
from workspaces.pages import Request, page, whole, workspace_or_404, workspace_to
from workspaces.plots import Plot, line

CHOICES = (7, 30, 90)
PEOPLE: exporting.Columns = {"person": "name", "yes": "yes", "no": "no", "near_instant": "fast",
          "median_seconds_at_the_card": "median_seconds"}  # fmt: skip
RULES: exporting.Columns = {"rule": "words", "tools": "glob", "asked": "asked",
         "granted": "granted", "false_alarms": "false_alarms", "near_instant": "fast"}  # fmt: skip
REVIEWS: exporting.Columns = {"rule": "words", "tools": "glob", "calls": "calls",
           "looked_at": "looked_at", "false_alarms": "false_alarms"}  # fmt: skip
DAYS: exporting.Columns = {"day": itemgetter(0),
        "median_seconds_to_decide": lambda one: median(one[1])}  # fmt: skip


@login_required
@require_GET
@replica.reads
def approval_health(request: Request, workspace: str) -> HttpResponseBase:
    here = workspace_or_404(request, workspace)
    chosen = request.GET.get("days", "")
    days = int(chosen) if chosen in {str(one) for one in CHOICES} else health.DAYS
    found = health.of(here, days=days)
    if exporting.is_asked(request):
        clean = disclosure.cleaner(request.user, here, deciding=True)
        tables: dict[str, exporting.Table] = {
            "who-answers": (found.people, PEOPLE),
            "rules-that-ask": (found.rules, RULES),
            "rules-under-review": (found.reviews, REVIEWS),
            "days": (sorted(found.by_day.items()), DAYS),
        }
        return exporting.table(request, tables, clean)
    return _page(request, here, found)


def show_unreviewed(
    request: Request, here: Workspace, pk: int, wrong: InvalidInput
) -> HttpResponse:
    """The page with a review that was not taken, and what was typed."""
    typed = Typed(pk, request.POST.get("review", ""), str(wrong))
    return _page(request, here, health.of(here, days=health.DAYS), typed, status=422)


class Typed(NamedTuple):
    """The review of a broken glass, by its approval, that was not taken, and why not."""

    approval: int
    text: str
    why: str


def _page(
    request: Request,
    here: Workspace,
    found: health.Health,
    typed: Typed | None = None,
    *,
    status: int = 200,
) -> HttpResponse:
    days = found.days
    glasses = glass_decisions.to_review(here, request.user)
    context = {
        "workspace": here,
        "views": views_of(here, request.user, "health"),
        "oldest": "",
        "days": days,
        "choices": CHOICES,
        "found": found,
        "figures": _figures(here, found),
        "plot": _plot(found, timezone.localdate()),
        "medians": [(day, seconds(median(times))) for day, times in sorted(found.by_day.items())],
        "pager": whole(request, found.people),
        "people": [_person(here, one, days) for one in found.people],
        "rules": found.rules,
        "reviews": found.reviews,
        "stamped": [
            {"words": one.words, "asked": one.asked, "slowest": seconds(one.slowest_seconds)}
            for one in found.rubber_stamped
        ],
        "proposals": _proposals_of(here, request.user),
        "glasses": [one | _typed_of(one, typed) for one in glasses],
        "reviewed": glass_decisions.reviewed(here),
        "empty": None
        if found.asked
        else {"icon": "clear", "title": f"Nobody was asked in the last {days} days."},
    }
    return page(request, "approvals/health.html", context, status=status)


def _typed_of(glass: dict[str, Any], typed: Typed | None) -> dict[str, str]:
    return (
        {"typed": typed.text, "wrong": typed.why} if typed and typed.approval == glass["id"] else {}
    )


def seconds(value: float | None) -> str:
    """A length of time; below a minute with one digit, where the digit matters."""
    if value is None:
        return "—"
    return f"{value:.1f} s" if value < 10 else formatting.span(timedelta(seconds=value))  # noqa: PLR2004


def _figures(here: Workspace, found: health.Health) -> list[dict[str, Any]]:
    """Each figure with what it means, and the query of the list that it counts."""
    ends = found.ends
    fast = f"under {health.FAST_SECONDS:.0f} s in front of the card"
    overturned = f"{found.taken_back} taken back · {found.undone_later} undone later"
    ended = f"{found.granted} granted · {ends['rejected']} rejected · {ends['expired']} expired"
    ended += f" · {ends['withdrawn']} withdrawn" if ends["withdrawn"] else ""
    ended += f"; {ends['waiting']} more wait" if ends["waiting"] else ""
    figures = [
        ("Time to decide, median", seconds(found.median_seconds), "", ""),
        ("Ended", found.asked - ends["waiting"], ended, ""),
        ("Near-instant yes", found.fast, fast, "is:fast"),
        ("Expired", ends["expired"], "nobody answered in time", "is:expired"),
        ("Overturned", found.overturned, overturned, "is:overturned"),
        ("Never used", found.never_used, "granted, and nobody came for it", "is:unused"),
    ]
    root = reverse("approvals:history", args=[here.slug])
    slowest = f"95 of 100 within {seconds(found.p95_seconds)}"
    slowest = slowest if found.p95_seconds is not None else "nobody has decided yet"
    return [
        {
            "name": name,
            "value": value,
            "note": note or slowest,
            "url": f"{root}?q={q}+asked:{found.days}d".replace("=+", "="),
        }
        for name, value, note, q in figures
    ]


def _plot(found: health.Health, today: date) -> Plot:
    """Median time to decide, day by day; days without an answer break the line."""
    days = [today - timedelta(days=back) for back in reversed(range(found.days))]
    medians = {day: median(times) for day, times in found.by_day.items()}
    numbers = [medians.get(f"{day:%Y-%m-%d}") for day in days]
    return line("Time to decide, median by day; the numbers stand below", days, numbers)


def _person(here: Workspace, one: health.PersonStats, days: int) -> dict[str, Any]:
    root = reverse("approvals:history", args=[here.slug])
    return {
        "name": one.name,
        "url": f"{root}?q=by:{one.pk}+asked:{days}d",
        "answers": one.yes + one.no,
        "rate": one.rate,
        "fast": one.fast,
        "median": seconds(one.median_seconds),
    }


def _proposals_of(here: Workspace, person: User) -> list[dict[str, Any]]:
    """For the health page of who may change the policy and sees payloads, out of which the limits
    are taken; nobody else is proposed anything.
    """
    if not may(person, "administer", here) or not disclosure.sees(person, here, deciding=True):
        return []
    try:
        found = proposals.of(here, active(here))
    except PolicyUnreadable:
        return []
    return [_proposal_row(here, one) for one in found]


def _proposal_row(here: Workspace, one: Proposal) -> dict[str, Any]:
    address = reverse("approvals:proposal", args=[here.slug])
    return {
        "words": one.words,
        "tighter": one.kind == TIGHTER,
        "url": f"{address}?{urlencode({'of': one.key})}",
    }


@login_required
@require_http_methods(["GET", "POST"])
def proposal(request: Request, workspace: str) -> HttpResponse:
    """One proposal with its dry run; saved it is a version, which a person puts in force."""
    here = workspace_to("administer", request, workspace)
    if not disclosure.sees(request.user, here, deciding=True):
        raise Http404("What is proposed rests on arguments.")
    request.shows_a_call = True
    current = active(here)
    found = proposals.find(here, current, request.GET.get("of", ""))
    if found is None:
        raise Http404("This is no longer proposed: what it rested on has changed.")
    problem, other = "", None
    if request.method == "POST":
        try:
            note = found.words[:NOTE_CHARACTERS_MAX]
            seen = versions.seen_by(request.POST)
            version = versions.save(here, found.source, by=request.user, note=note, after=seen)
        except Invalid as wrong:
            problem = str(wrong)
        except versions.SavedMeanwhile as wrong:
            other = wrong
        else:
            return redirect("approvals:version", workspace=here.slug, number=version.number)
    context = {
        "workspace": here,
        "words": found.words,
        "tighter": found.kind == TIGHTER,
        "lost": found.lost,
        "diff": versions.diff(current.document, read(found.source).value),
        "rehearsal": dry_run.rehearse(here, load(found.source), current),
        "problem": {"tone": "bad", "title": "Nothing was saved.", "text": problem}
        if problem
        else None,
        "notice": other.notice() if other else None,
        "seen": versions.newest_number(here),
    }
    status = 409 if other else 422 if problem else 200
    return page(request, "approvals/proposal.html", context, status=status)
