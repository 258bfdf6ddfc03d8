"""What the previews of a case share: how they are shown, and where a committed one leads."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django_htmx.http import HttpResponseClientRedirect

from recovery.models import Case
from recovery.views.request_context import case_url, head, queue_url, stale
from workspaces.pages import Request, is_number, page

TO_THE_RECORD = "the record"
TO_THE_APPROVERS_TOO = "the approvers and the record"


def revision(request: Request) -> int:
    """The revision that was seen; none that any case has where it cannot be read."""
    said = request.POST.get("revision", "")
    return int(said) if is_number(said) else -1


def show(
    request: Request,
    act: str,
    case: Case,
    told: dict[str, Any],
    *,
    problem: Exception | None = None,
    why_goes: str = TO_THE_RECORD,
) -> HttpResponse:
    """The page of the act ("Compensate"): with a problem it is a refusal that keeps what was typed.

    `told` is what this preview says of its own, and may say otherwise what all of them say.
    """
    name = act.lower()
    context = {
        "workspace": case.workspace,
        "act": act,
        "case": head(case),
        "queue_url": queue_url(case.workspace),
        "action": f"{case_url(case)}{name}/",
        "problem": stale(problem) if problem else None,
        "why": request.POST.get("why", ""),
        "why_goes": why_goes,
    }
    status = 409 if problem else 200
    return page(request, f"recovery/{name}.html", context | told, status=status)


def done(request: Request, case: Case, words: str, level: int = messages.SUCCESS) -> HttpResponse:
    """Back to the case, which says what was done."""
    messages.add_message(request, level, words)
    target = case_url(case)
    return HttpResponseClientRedirect(target) if request.htmx else redirect(target)
