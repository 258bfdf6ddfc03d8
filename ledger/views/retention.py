"""What is kept and what was forgotten: retention, and erasing what was said of a person."""

import time
from typing import Any

from django import forms
from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.db.utils import OperationalError
from django.http import HttpResponse, HttpResponseBase
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from ledger import disclosure, erasure, retention
from ledger.models import Erasure, ErasureState, Thinning
from workspaces import exporting, formatting
from workspaces.forms import WrittenField
from workspaces.free_text import NOTE_CHARACTERS_MAX
from workspaces.models import User, Workspace
from workspaces.pages import Request, page, workspace_to

LINES_MAX = 50
REQUEST_SECONDS = 3.0
TONES = {ErasureState.WAITING: "busy", ErasureState.DONE: "ok", ErasureState.REFUSED: "bad"}
PERSON_CHARACTERS_MAX = 120


class ErasureForm(forms.Form):
    """Whom to forget. It is posted twice: to be shown what would go, and to do it."""

    person = forms.CharField(
        max_length=PERSON_CHARACTERS_MAX,
        label="Person",
        help_text="The id under which agents acted for them (on_behalf_of.id)",
    )
    reason = WrittenField(
        characters_max=NOTE_CHARACTERS_MAX,
        required=False,
        label="Reason",
        help_text="Kept in the registry for good, so name nobody: “asked by letter of 3 May”",
    )


@login_required
@require_http_methods(["GET", "POST"])
def kept(request: Request, workspace: str) -> HttpResponseBase:
    """Administrators see what retention let go and who was erased, and erase."""
    here = workspace_to("administer", request, workspace)
    if exporting.is_asked(request):
        tables: dict[str, exporting.Table] = {
            "erasures": (_registered(here), ERASURES),
            "let-go-by-time": (_let_go(here), LET_GO),
        }
        return exporting.table(request, tables, disclosure.cleaner(request.user, here))
    form = ErasureForm(request.POST if request.method == "POST" else None)
    found, done, problem = None, None, ""
    if form.is_valid():
        person, reason = form.cleaned_data["person"], form.cleaned_data["reason"]
        try:
            if request.POST.get("act") == "erase":
                done = _begun(here, person, request.user, reason)
                form = ErasureForm()
            else:
                found = _found(here, person)
        except (erasure.NothingFound, erasure.StillWorkedOn) as refusal:
            problem = str(refusal)
    days = here.retention_days
    counts = "next" in request.GET  # asked by itself, for it looks at runs one by one
    context = {
        "workspace": here,
        "tab": "kept",
        "title": "Kept and forgotten",
        "lead": f"What was said is kept for {days} day{'' if days == 1 else 's'}, as the policy"
        " says; longer only while somebody works with it. The log and every proof of it stay.",
        "form": form,
        "found": found,
        "done": done,
        "problem": {"title": "Nothing was erased", "text": problem} if problem else None,
        **({"next": _next(here)} if counts else {"next_url": f"{request.path}?next=1"}),
        "thinnings": _thinnings(here),
        **_registry(here),
    }
    part, status = "next" if counts else None, _status(form, problem)
    return page(request, "ledger/kept.html", context, part=part, status=status)


@login_required
@require_GET
def progress(request: Request, workspace: str) -> HttpResponse:
    """The registry alone, asked again while an erasure goes on."""
    here = workspace_to("administer", request, workspace)
    context = {"workspace": here, **_registry(here)}
    return page(request, "ledger/kept.html", context, part="registry")


def _begun(here: Workspace, person: str, by: User, reason: str) -> Erasure:
    """Ask for it and do what a request has time for; the scheduler goes on with the rest."""
    asked = erasure.ask(here, person=person, by=by, reason=reason)
    until = time.monotonic() + REQUEST_SECONDS
    while time.monotonic() < until and erasure.work(asked.pk):
        pass
    asked.refresh_from_db()
    if asked.state == ErasureState.REFUSED:
        raise erasure.StillWorkedOn(asked.detail.split(", "))
    return asked


def _status(form: ErasureForm, problem: str) -> int:
    return 422 if form.is_bound and form.errors else 409 if problem else 200


def _found(here: Workspace, person: str) -> dict[str, Any]:
    would = erasure.find(here, person=person)
    before = erasure.erased_before(here, person)
    return {
        "nothing": would.is_nothing,
        "runs": formatting.count(len(would.scope.runs)),
        "actions": formatting.count(len(would.scope.actions)),
        "names": would.scope.names[:LINES_MAX],
        "blockers": would.blockers,
        "before": formatting.moment(before[0].at, "day") if before else "",
    }


def _next(here: Workspace) -> dict[str, str] | None:
    """What the next turn would let go; nothing while a table is locked."""
    try:
        would = retention.glance(here)
    except OperationalError:
        return None
    weeks = [_week(name) for name in would.weeks]
    return {
        "runs": formatting.count(would.runs, retention.RUNS_GLANCED_MAX),
        "weeks": ", ".join(weeks),
    }


def _week(partition: str) -> str:
    return partition.removeprefix("ledger_event_")


def _let_go(here: Workspace) -> QuerySet[Thinning]:
    return Thinning.objects.filter(workspace=here).order_by("-pk")


LET_GO: exporting.Columns = {
    "week": lambda one: _week(one.partition),
    "let_go": "let_go",
    "kept": "kept",
    "at": "at",
}


def _thinnings(here: Workspace) -> list[dict[str, Any]]:
    rows = _let_go(here)[:LINES_MAX]
    return [
        {"week": _week(row.partition), "let_go": formatting.count(row.let_go),
         "kept": formatting.count(row.kept), "at": formatting.moment(row.at)}
        for row in rows
    ]  # fmt: skip


def _registry(here: Workspace) -> dict[str, Any]:
    lines = _erasures(here)
    going_on = any(line["going_on"] for line in lines)
    return {
        "erasures": lines,
        "progress_url": reverse("ledger:kept_progress", args=[here.slug]) if going_on else "",
    }


def _registered(here: Workspace) -> QuerySet[Erasure]:
    return Erasure.objects.filter(workspace=here).select_related("by").order_by("-pk")


def _by(one: Erasure) -> str:
    return str(one.by or "on the command line")


ERASURES: exporting.Columns = {
    "number": "pk",
    "at": "at",
    "state": "state",
    "by": _by,
    "runs": "run_count",
    "events": "event_count",
    "rows": lambda one: sum(one.rows.values()),
    "reason": "reason",
}


def _erasures(here: Workspace) -> list[dict[str, Any]]:
    rows = _registered(here)[:LINES_MAX]
    return [
        {"number": row.pk, "by": _by(row),
         "at": formatting.moment(row.at), "runs": formatting.count(row.run_count),
         "events": formatting.count(row.event_count), "reason": row.reason,
         "rows": formatting.count(sum(row.rows.values())), "detail": row.detail,
         "going_on": row.state == ErasureState.WAITING, "tone": TONES[ErasureState(row.state)],
         "state": row.get_state_display().capitalize(), "total": formatting.count(row.total)}
        for row in rows
    ]  # fmt: skip
