"""The preview of closing: what stays as it is, how the case ends, and who owns what is left."""

from datetime import datetime, time, timedelta
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.views.decorators.http import require_http_methods

from recovery.cases.lifecycle import InvalidInput, OutOfDate
from recovery.casework import closing
from recovery.models import Case, CaseOutcome
from recovery.run_facts.runs import RunFacts, facts_of
from recovery.views import preview, story
from recovery.views.request_context import case_or_404
from workspaces import formatting
from workspaces.access import people_with, require
from workspaces.moves import CannotMove
from workspaces.pages import Request, is_number

DUE_DAYS = 7
PEOPLE_MAX = 200


@login_required
@require_http_methods(["GET", "POST"])
def close(request: Request, workspace: str, pk: int) -> HttpResponse:
    case = case_or_404(request, workspace, pk)
    require(request.user, "recover", case.workspace)
    facts = facts_of(case.run)
    if request.method == "GET":
        return _show(request, case, facts)
    said = request.POST
    try:
        closing.close(
            case,
            outcome=said.get("ending", ""),
            reason=said.get("why", ""),
            by=request.user,
            seen=preview.revision(request),
            left=_left(request, case, facts),
        )
    except (OutOfDate, CannotMove, closing.CannotClose, InvalidInput) as refusal:
        return _show(request, case, facts, problem=refusal)
    return preview.done(request, case, "The case is closed.")


def _left(request: Request, case: Case, facts: RunFacts) -> list[closing.Remainder]:
    """All that remains gets the chosen owner and date; none where nobody was chosen."""
    said, owner = request.POST, request.POST.get("owner", "")
    day = parse_date(said.get("due", "")) if said.get("due") else None
    if said.get("ending") != CaseOutcome.PARTLY or not is_number(owner) or day is None:
        return []
    person = people_with("view", case.workspace).filter(pk=owner).first()
    if person is None:
        return []
    due = timezone.make_aware(datetime.combine(day, time(23, 59)))
    return [
        closing.Remainder(
            text=story.line(action, effect)["summary"],
            owner=person,
            due_at=due,
            effect_id=effect.pk if effect else None,
        )
        for action, effect in facts.remaining()
    ][: closing.RESIDUES_MAX]


def _show(
    request: Request, case: Case, facts: RunFacts, *, problem: Exception | None = None
) -> HttpResponse:
    if problem is not None:
        case.refresh_from_db()
    standing, said = facts.remaining(), request.POST
    chosen = said.get("ending") or (CaseOutcome.EXPECTED if not standing else "")
    people = people_with("view", case.workspace).order_by("name")[:PEOPLE_MAX]
    whose = formatting.person(case.customer_name or case.customer or case.run.run)
    told: dict[str, Any] = {
        "title": f"Close the case of {whose}",
        "lead": "What stands stays as it is. Nothing is sent.",
        "standing": [
            story.line(*one, irreversible=facts.is_irreversible(*one)) for one in standing
        ],
        "endings": [
            {
                "value": outcome,
                "label": CaseOutcome(outcome).label,
                "note": closing.BY_PEOPLE[outcome],
                "selected": outcome == chosen,
                "why_not": closing.why_not_as(case, outcome),
            }
            for outcome in closing.BY_PEOPLE
        ],
        "people": [{"value": str(one.pk), "label": str(one)} for one in people] if standing else [],
        "owner": said.get("owner", str(request.user.pk)),
        "due": said.get("due", f"{timezone.localdate() + timedelta(days=DUE_DAYS)}"),
        "zone": timezone.get_current_timezone_name(),
        "why_not": closing.why_not(case, facts, closing.living_plan(case)),
        "commit_label": "Close the case",
    }
    return preview.show(request, "Close", case, told, problem=problem)
