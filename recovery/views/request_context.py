"""Where a view stands: the workspace, the case in it, and the words its pages share."""

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.safestring import SafeString
from django_htmx.http import HttpResponseClientRedirect

from ledger import disclosure
from ledger.api import trace_url
from ledger.models import RunState
from recovery.cases.lifecycle import CHANGED, OutOfDate
from recovery.models import Case, CaseState
from recovery.triage.headlines import without_sum
from recovery.views import story
from workspaces import access, clock, formatting
from workspaces.models import User, Workspace
from workspaces.pages import Request, is_number, page, workspace_or_404


def case_or_404(request: HttpRequest, slug: str, pk: int) -> Case:
    """The case, if the person may view its workspace; with what its pages need at hand."""
    workspace = workspace_or_404(request, slug)
    return get_object_or_404(
        Case.objects.select_related(
            "workspace", "run__agent", "run__workspace", "claimed_by", "cause", "failed_action"
        ),
        pk=pk,
        workspace=workspace,
    )


def case_to_recover(request: Request, slug: str, pk: int) -> Case:
    """The same for who may recover; raises NotAllowed."""
    case = case_or_404(request, slug, pk)
    access.require(request.user, "recover", case.workspace)
    return case


def queue_url(workspace: Workspace) -> str:
    return f"/w/{workspace.slug}/queue/"


def list_of(request: HttpRequest) -> str:
    """The list that a case was opened from, as the query string of its address; often empty."""
    kept = {name: request.GET[name] for name in ("q", "sort", "all") if request.GET.get(name)}
    return urlencode(kept)


def case_url(case: Case) -> str:
    return f"/w/{case.workspace.slug}/cases/{case.pk}/"


def _told_once(sentence: str, headline: str) -> str:
    """The whole sentence below a short headline, without what stands in that already."""
    trouble = without_sum(headline)
    for joint in (", and ", ", then "):
        said = f"{joint}{trouble[:1].lower()}{trouble[1:]}"
        if without_sum(sentence).endswith(said):
            return without_sum(sentence).removesuffix(said)
    end = sentence.rpartition(", ")[2]
    return without_sum(sentence) if headline.endswith(f", {end}") else sentence


SENTENCE_CHARACTERS_MAX = 150
"""Two lines on a narrow desk. A longer sentence stands below the trouble alone, as lists say it."""


def head(case: Case, reader: User) -> dict[str, Any]:
    """What every page of a case says of it to a reader, formatted."""
    sensitive = disclosure.sees(reader, case.workspace)
    sentence = disclosure.headline(case.headline, case.headline_in_full, sensitive=sensitive)
    is_long = bool(case.brief) and len(sentence) > SENTENCE_CHARACTERS_MAX
    return {
        "id": case.pk,
        "url": case_url(case),
        "run": case.run.run,
        "run_url": reverse("ledger:run", args=[case.workspace.slug, case.run.run]),
        "revision": case.revision,
        "risk": case.risk,
        "state": case.state,
        "headline": case.brief if is_long else sentence,
        "story": _told_once(sentence, case.brief) if is_long else "",
        "request": case.request,
        "customer": case.customer_name or case.customer,
        "failed": formatting.moment(case.failed_at),
        "failed_word": _failed_word(case),
        "due": due_words(case),
        "trace_url": trace_url(case.run.trace),
        "agent": case.agent.name if case.agent else "the desk",
        "model": case.run.model,
    }


def _failed_word(case: Case) -> str:
    """What the moment of a case is: of a run that completed not a failure."""
    words = {RunState.COMPLETED: "completed", RunState.CANCELLED: "cancelled"}
    if case.failed_action_id:
        return "went wrong" if case.run.state == RunState.COMPLETED else "failed"
    return words.get(RunState(case.run.state), "failed")


def due_words(case: Case) -> str:
    """`due in 3 h`, which goes on counting while the page stands open; markup, where not empty."""
    if case.due_at is None or case.state == CaseState.CLOSED:
        return ""
    if case.due_at > clock.now():
        return SafeString(f"due {formatting.moment(case.due_at)}")  # times alone
    return SafeString(f"past due for {formatting.moment(case.due_at, 'span')}")  # as above


def window_words(case: Case) -> str:
    """`undo closes in 3 h`, of the first window of what stands; empty where none is known."""
    if case.undo_until is None or case.state == "closed":
        return ""
    if case.undo_until > clock.now():
        return SafeString(f"undo closes {formatting.moment(case.undo_until)}")  # a time alone
    return "an undo window is over"


def stale(reason: Exception) -> dict[str, str]:
    """A notice for the page that somebody acted on too late; nothing typed is lost."""
    title, last = "Not done.", ""
    if isinstance(reason, OutOfDate):
        title = "It has changed since you saw it."
        acts = story.activity(reason.case, 1) if str(reason) == CHANGED else []
        last = "".join(
            f" Last, {one['who']} {one['words']}, {formatting.ago(one['at'])}." for one in acts
        )
    return {"tone": "wait", "title": title, "text": f"{reason}{last} Nothing was changed by you."}


TO_THE_RECORD = "the record"
TO_THE_APPROVERS_TOO = "approvers and record"


def seen_revision(request: Request) -> int:
    """The revision that was seen; none that any case has where it cannot be read."""
    given = request.POST.get("revision", "")
    return int(given) if is_number(given) else -1


def show_preview(
    request: Request,
    act: str,
    case: Case,
    context: dict[str, Any],
    *,
    problem: Exception | None = None,
) -> HttpResponse:
    """The page of the act ("Compensate"): with a problem it is a refusal that keeps what was typed.

    `context` is what this preview says of its own, and may say otherwise what all of them say.
    """
    name = act.lower()
    shared = {
        "workspace": case.workspace,
        "act": act,
        "case": head(case, request.user),
        "queue_url": queue_url(case.workspace),
        "action": f"{case_url(case)}{name}/",
        "problem": stale(problem) if problem else None,
        "why": request.POST.get("why", ""),
        "why_goes": TO_THE_RECORD,
    }
    status = 409 if problem else 200
    return page(request, f"recovery/{name}.html", shared | context, status=status)


def preview_done(
    request: Request, case: Case, words: str, level: int = messages.SUCCESS
) -> HttpResponse:
    """Back to the case, which says what was done."""
    messages.add_message(request, level, words)
    target = case_url(case)
    return HttpResponseClientRedirect(target) if request.htmx else redirect(target)
