"""The preview of closing: what stays as it is, how the case ends, and who owns what is left."""

from collections.abc import Iterator, Sequence
from datetime import datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.views.decorators.http import require_GET, require_http_methods

from approvals import policy
from connectors.links import Link
from ledger import disclosure
from ledger.models import Reversibility
from recovery.cases.lifecycle import REFUSALS
from recovery.casework import closing
from recovery.models import Case, CaseOutcome, Residue
from recovery.run_facts.records import Records
from recovery.run_facts.runs import RunFacts, facts_of
from recovery.run_facts.sentences import many
from recovery.views import request_context, story
from recovery.views.queue_rows import trouble_of
from recovery.views.request_context import case_to_recover, case_url
from workspaces import clock, exporting, formatting
from workspaces.access import people_with, require
from workspaces.free_text import InvalidInput
from workspaces.models import User, Workspace
from workspaces.moves import CannotMove
from workspaces.pages import (
    Request,
    chips,
    counted,
    folded,
    is_number,
    page,
    still_seen,
    workspace_or_404,
)

DUE_DAYS = 7
END_OF_DAY = time(23, 59)
PEOPLE_MAX = 200


@login_required
@require_http_methods(["GET", "POST"])
def close(request: Request, workspace: str, pk: int) -> HttpResponse:
    case = case_to_recover(request, workspace, pk)
    facts = facts_of(case.run)
    if request.method == "GET":
        return _show(request, case, facts)
    posted = request.POST
    try:
        closing.close(
            case,
            outcome=posted.get("ending", ""),
            reason=posted.get("why", ""),
            by=request.user,
            seen=request_context.seen_revision(request),
            left=_left(request, case, facts),
        )
    except REFUSALS as refusal:
        return _show(request, case, facts, problem=refusal)
    return request_context.preview_done(request, case, "The case is closed.")


def _left(request: Request, case: Case, facts: RunFacts) -> list[closing.Remainder]:
    """All that remains gets the chosen owner and date, what is too much for lines of its own in one
    that counts it; none where nobody was chosen.
    """
    posted, owner = request.POST, request.POST.get("owner", "")
    due = _end_of(posted.get("due", ""))
    if posted.get("ending") != CaseOutcome.PARTLY or not is_number(owner) or due is None:
        return []
    person = people_with("view", case.workspace).filter(pk=owner).first()
    if person is None:
        return []
    left = [
        closing.Remainder(
            text=story.title(action, effect),
            owner=person,
            due_at=due,
            effect_id=effect.pk if effect else None,
        )
        for action, effect in facts.remaining()
    ]
    if facts.remaining_count <= closing.RESIDUES_MAX:
        return left
    named = left[: closing.RESIDUES_MAX - 1]
    more = f"{facts.remaining_count - len(named)} more, which the page of the run lists"
    return [*named, closing.Remainder(text=more, owner=person, due_at=due)]


def _can_be_undone(line: dict[str, Any]) -> bool:
    return bool(line["reversibility"] != Reversibility.IRREVERSIBLE)


def _show(
    request: Request, case: Case, facts: RunFacts, *, problem: Exception | None = None
) -> HttpResponse:
    if problem is not None:
        case.refresh_from_db()
    standing, posted = facts.remaining(), request.POST
    chosen = posted.get("ending") or ("" if facts.remaining_count else CaseOutcome.EXPECTED)
    people = _people(case.workspace, request.user)
    endings = [
        {
            "value": outcome,
            "label": CaseOutcome(outcome).label,
            "note": note,
            "selected": outcome == chosen,
            "why_not": closing.why_not_as(case, outcome),
        }
        for outcome, note in closing.BY_PEOPLE.items()
    ]
    whose = formatting.person(case.customer_name or case.customer or case.run.run)
    context: dict[str, Any] = {
        "title": f"Close the case of {whose}",
        "lead": "What stands stays as it is. Nothing is sent.",
        "standing_count": formatting.count(facts.remaining_count),
        "more": many(facts.more_remaining, "older one") if facts.more_remaining else "",
        "standing": folded(story.lines(facts, standing), _can_be_undone, story.in_short),
        "endings": sorted(endings, key=lambda one: bool(one["why_not"])),  # first what it can be
        "people": [{"value": str(one.pk), "label": formatting.with_address(one)} for one in people]
        if standing
        else [],
        "owner": posted.get("owner", str(request.user.pk)),
        "due": posted.get("due", f"{timezone.localdate() + timedelta(days=DUE_DAYS)}"),
        "zone": timezone.get_current_timezone_name(),
        "why_not": closing.why_not(case, facts, closing.living([case]).get(case.pk)),
        "commit_label": "Close the case",
    }
    return request_context.show_preview(request, "Close", case, context, problem=problem)


def _people(here: Workspace, chosen: User) -> list[User]:
    """Who can own what is left, as far as a field shows them, with whom it has chosen: without, a
    browser would choose the first of the others.
    """
    people = people_with("view", here)
    shown = list(people.order_by("name", "pk")[:PEOPLE_MAX])
    return shown if chosen in shown else [*people.filter(pk=chosen.pk), *shown]


RESIDUE_VIEWS = {"open": "Open", "mine": "Mine", "overdue": "Past due", "done": "Done"}


def _state_of(view: str) -> str:
    return "done" if view == "done" else "open"


@login_required
@require_GET
def residue_list(request: Request, workspace: str) -> HttpResponseBase:
    here = workspace_or_404(request, workspace)
    view = request.GET.get("view", "open")
    view = view if view in RESIDUE_VIEWS else "open"
    found = closing.residues_of(here)
    if exporting.is_asked(request):
        return _export_residues(request, here, _narrowed(found, view, request), view)
    rows, more = closing.residues_after(
        _narrowed(found, view, request), _state_of(view), request.GET.get("after", "")
    )
    url = reverse("recovery:residues", args=[here.slug])
    context = {
        "workspace": here,
        "views": [
            chip | {"count": counted(_of_view(_narrowed(found, name, request), name))}
            for name, chip in zip(
                RESIDUE_VIEWS, chips(request, "view", RESIDUE_VIEWS.items(), view), strict=True
            )
        ],
        "rows": [residue_row(one) for one in rows],
        "pager": {
            "label": f"{formatting.count(len(rows))} shown",
            "previous": f"{url}?view={view}" if request.GET.get("after") else "",
            "next": f"{url}?{urlencode({'view': view, 'after': more})}" if more else "",
            "files": exporting.links(request),
        },
        "empty": {
            "icon": "clear",
            "title": "Nothing is left over here",
            "text": "When a case is closed and something of it could not be undone, it gets an"
            " owner and a date, and stands here until somebody says what was done about it.",
        },
    }
    return page(request, "recovery/residues.html", context)


def _export_residues(request: Request, here: Workspace, found: Any, view: str) -> HttpResponseBase:
    chosen = _of_view(found, view).order_by("due_at", "pk")
    columns = ("id", "what", "case", "run", "customer", "owner", "due_at", "done_at", "done_by",
               "note")  # fmt: skip

    def read(keys: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        for one in exporting.in_order(found, keys):
            row = residue_row(one)
            yield (one.pk, row["text"], one.case_id, row["run"], row["customer"], row["owner"],
                   one.due_at, one.done_at, row["done_by"], row["note"])  # fmt: skip

    export = exporting.Export(
        "left-over", columns, exporting.keys(chosen), read, disclosure.cleaner(request.user, here)
    )
    return exporting.answer(request, export)


def _narrowed(found: Any, view: str, request: Request) -> Any:
    if view == "mine":
        return found.filter(owner=request.user)
    return found.filter(due_at__lt=clock.now()) if view == "overdue" else found


def _of_view(found: Any, view: str) -> Any:
    return found.filter(**closing.RESIDUE_STATES[_state_of(view)])


@login_required
@require_http_methods(["GET", "POST"])
def residue(request: Request, workspace: str, pk: int) -> HttpResponse:
    """GET shows it; POST says that it is done, by name and with what was done."""
    here = workspace_or_404(request, workspace)
    found = get_object_or_404(closing.residues_of(here), pk=pk)
    if request.method == "GET":
        return _show_residue(request, found)
    if not closing.may_end_residue(found, request.user):
        require(request.user, "recover", here)
    note = request.POST.get("note", "")
    try:
        if request.POST.get("act") == "move":
            seen = request.POST.get("seen")
            closing.residue_moved(found, by=request.user, seen=seen, **_moved(request, found))
            messages.success(request, "It has another owner or date now.")
            return redirect("recovery:residue", workspace=here.slug, pk=pk)
        closing.residue_done(found, note=note, by=request.user)
    except (CannotMove, InvalidInput) as refusal:
        problem = {"tone": "bad", "title": "Nothing was written down.", "text": str(refusal)}
        status = 409 if isinstance(refusal, CannotMove) else 422
        found = get_object_or_404(closing.residues_of(here), pk=pk)
        return _show_residue(request, found, problem=problem, note=note, status=status)
    messages.success(request, "Done, in your name.")
    return redirect("recovery:residue", workspace=here.slug, pk=pk)


def _end_of(text: str) -> datetime | None:
    """The end of a day by the reader's clock; None of what is no day, as the 45th of a month."""
    try:
        day = parse_date(text)
    except ValueError:
        return None
    if day is None:
        return None
    return datetime.combine(day, END_OF_DAY, tzinfo=timezone.get_current_timezone())


def _moved(request: Request, found: Residue) -> dict[str, Any]:
    """Owner and date as they were posted; raises InvalidInput."""
    people = people_with("view", found.case.workspace)
    chosen = request.POST.get("owner", "")
    owner = people.filter(pk=chosen).first() if is_number(chosen) else None
    due = _end_of(request.POST.get("due", ""))
    if owner is None or due is None:
        raise InvalidInput("Choose who looks after it, and until which day.")
    return {"owner": owner, "due_at": due}


def _show_residue(
    request: Request,
    found: Residue,
    *,
    problem: dict[str, str] | None = None,
    note: str = "",
    status: int = 200,
) -> HttpResponse:
    here = found.case.workspace
    may_end = closing.may_end_residue(found, request.user)
    row = residue_row(found)
    who = "Whoever recovers" if row["is_lost"] else f"Whoever recovers, or {found.owner},"
    trouble = trouble_of(found.case, sensitive=disclosure.sees(request.user, here))
    chosen = request.POST.get("owner", str(found.owner_id))
    context = {
        "workspace": here,
        "list_url": reverse("recovery:residues", args=[here.slug]),
        "link": _record_of(found),
        "residue": row | {"due_at": formatting.moment(found.due_at), "case": trouble},
        "problem": problem,
        "note": note,
        "may_end": may_end and found.done_at is None,
        "seen": still_seen(request, status) or closing.residue_seen(found),
        "people": [
            {
                "value": one.pk,
                "label": formatting.with_address(one),
                "selected": str(one.pk) == chosen,
            }
            for one in _people(here, found.owner)
        ],
        "due_day": request.POST.get("due", f"{timezone.localdate(found.due_at)}"),
        "why_not": "" if may_end else f"{who} can say so.",
    }
    return page(request, "recovery/residue.html", context, status=status)


def _record_of(one: Residue) -> Link | None:
    """Where what is left stands in the outside system, if its connection says so."""
    if one.effect is None:
        return None
    here = one.case.workspace
    return Records(here, policy.active(here)).of_effect(one.effect.action, one.effect)


def residue_row(one: Any) -> dict[str, Any]:
    """One line, wherever what is left is listed; of what `closing.residues_of` has found."""
    is_done = one.done_at is not None
    is_lost = not (is_done or one.is_looked_after)
    here = one.case.workspace.slug
    return {
        "text": one.text,
        "url": reverse("recovery:residue", args=[here, one.pk]),
        "case_url": case_url(one.case),
        "run": one.case.run.run,
        "customer": one.case.customer_name or one.case.customer,
        "owner": f"nobody: {one.owner} is no longer here" if is_lost else str(one.owner),
        "is_lost": is_lost,
        "due": "done" if is_done else formatting.moment(one.due_at),
        "overdue": not is_done and one.due_at < clock.now(),
        "is_done": is_done,
        "done": f"{one.done_by or 'Somebody'}, {formatting.ago(one.done_at)}"
        if one.done_at
        else "",
        "done_at": formatting.moment(one.done_at) if one.done_at else "",
        "done_by": str(one.done_by or "Somebody") if is_done else "",
        "note": one.done_note,
    }
