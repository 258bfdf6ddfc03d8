"""The policy pages: what is in force, its versions, a new one with a dry run, and pauses."""

from collections.abc import Collection
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from approvals import finding, inventory, pauses, rules, team_coverage, versions
from approvals.models import Pause, PauseKind, PolicyVersion
from approvals.policy import Invalid, Mistake, PolicyUnreadable, active, default, load
from approvals.views.policy_editor import rehearsed
from connectors.models import Connection
from ledger import disclosure
from workspaces import exporting, formatting
from workspaces.access import NotAllowed, may
from workspaces.forms import WrittenField
from workspaces.free_text import NOTE_CHARACTERS_MAX
from workspaces.models import Workspace
from workspaces.moves import CannotMove
from workspaces.pages import Request, page, page_of, workspace_or_404, workspace_to

# Forms of the policy pages. They check words; the verbs check rules.


class PauseForm(forms.Form):
    kind = forms.ChoiceField(label="What", choices=[("", "Choose what"), *PauseKind.choices])
    name = forms.CharField(
        label="Which",
        max_length=200,
        required=False,
        help_text="An agent, a connection, a tool (globs work), or a run’s id; a workspace: none.",
    )
    reason = WrittenField(label="Why", characters_max=NOTE_CHARACTERS_MAX)

    def clean(self) -> dict[str, Any]:
        said: dict[str, Any] = super().clean() or {}
        everything = said.get("kind") == PauseKind.WORKSPACE
        if everything and said.get("name"):
            self.add_error("name", "The whole workspace is paused without a name.")
        if not everything and not said.get("name"):
            self.add_error("name", "Say which one.")
        return said


VERSIONS_SHOWN_MAX = 100
PAUSES_SHOWN_MAX = 100
FROM_A_FILE = "from a file"


def _versions(here: Workspace) -> list[PolicyVersion]:
    rows = PolicyVersion.objects.filter(workspace=here).select_related("author")
    return list(rows.order_by("-number")[: VERSIONS_SHOWN_MAX + 1])


def _may_pause(request: Request, here: Workspace) -> bool:
    return may(request.user, "recover", here) or may(request.user, "administer", here)


def _standing(here: Workspace) -> QuerySet[Pause]:
    standing = Pause.objects.standing().filter(workspace=here)
    return standing.select_related("paused_by").order_by("-pk")


def _tables(here: Workspace) -> dict[str, exporting.Table]:
    versions = PolicyVersion.objects.filter(workspace=here).select_related("author")
    return {
        "pauses": (_standing(here), {"what": pauses.what, "reason": "reason",
                   "by": pauses.placed_by, "since": "paused_at"}),
        "policy-versions": (versions.order_by("-number"), {"version": "number", "digest": "digest",
                "by": lambda one: str(one.author or FROM_A_FILE), "why": "note",
                "made_at": "created_at", "in_force": "active", "in_force_since": "activated_at",
                "in_shadow_since": "shadow_since"}),
    }  # fmt: skip


def _page(
    request: Request, here: Workspace, *, pause_form: PauseForm | None = None, status: int = 200
) -> HttpResponse:
    version = versions.in_force(here)
    paused, saved = list(_standing(here)[: PAUSES_SHOWN_MAX + 1]), _versions(here)
    standing = paused[:PAUSES_SHOWN_MAX]
    context = {
        "workspace": here,
        "version": version,
        "source": versions.source_of(version),
        "table": rules.of(versions.source_of(version), whole="rules" in request.GET),
        "versions": [
            {
                "number": one.number,
                "digest": formatting.digest(one.digest),
                "author": one.author or FROM_A_FILE,
                "note": one.note,
                "made": formatting.moment(one.created_at),
                "active": one.active,
                "shadow": one.shadow_since is not None,
            }
            for one in saved[:VERSIONS_SHOWN_MAX]
        ],
        "more_versions": len(saved) > VERSIONS_SHOWN_MAX,
        "pauses": [
            {
                "id": one.pk,
                "what": pauses.what(one),
                "reason": one.reason,
                "by": pauses.placed_by(one),
                "is_ours": one.paused_by_id is None,
                "since": formatting.moment(one.paused_at),
                "holds": str(held),
            }
            for one, held in zip(standing, pauses.held_runs(standing), strict=True)
        ],
        "more_pauses": len(paused) > PAUSES_SHOWN_MAX,
        **_wrong(here),
        "pause_form": pause_form or PauseForm(initial=_asked_to_stop(request)),
        "may_pause": _may_pause(request, here),
        "may_administer": may(request.user, "administer", here),
    }
    return page(request, "approvals/policies.html", context, status=status)


def _asked_to_stop(request: Request) -> dict[str, str]:
    """The fields of the form for whoever comes from where a run, an agent or a tool stands."""
    kinds = (PauseKind.RUN, PauseKind.AGENT, PauseKind.TOOL)
    named = ((kind, request.GET.get(kind, "")) for kind in kinds)
    return next(({"kind": kind, "name": name} for kind, name in named if name), {})


def _wrong(here: Workspace) -> dict[str, list[Mistake]]:
    """What nobody can meet of the policy in force, or why it is none."""
    try:
        return {"unmet": team_coverage.unmet_now(here), "unreadable": []}
    except PolicyUnreadable as wrong:
        return {"unmet": [], "unreadable": wrong.problems}


@login_required
@require_GET
def policies(request: Request, workspace: str) -> HttpResponseBase:
    here = workspace_or_404(request, workspace)
    if exporting.is_asked(request):
        return exporting.table(request, _tables(here), disclosure.cleaner(request.user, here))
    return _page(request, here)


@login_required
@require_GET
def version(request: Request, workspace: str, number: int) -> HttpResponse:
    """One version, how it differs from the one in force, and what it would have said."""
    here = workspace_or_404(request, workspace)
    one = get_object_or_404(
        PolicyVersion.objects.select_related("author", "workspace"), workspace=here, number=number
    )
    return _version(request, here, one)


def _version(
    request: Request, here: Workspace, one: PolicyVersion, *, problem: str = "", status: int = 200
) -> HttpResponse:
    current = versions.in_force(here)
    policy = None
    refusals = [] if one.active else versions.refusals(one)
    try:
        policy = load(one.document)
    except Invalid as wrong:
        if not refusals:
            problem = problem or f"This version cannot be read any more: {wrong}"
    before = current.document if current else default().document
    context = {
        "workspace": here,
        "version": one,
        "source": versions.source_of(one),
        "current": current,
        "made": formatting.moment(one.created_at),
        "diff": versions.diff(before, one.document),
        "shadow_since": formatting.moment(one.shadow_since) if one.shadow_since else "",
        "rehearsal": rehearsed(here, policy, since=one.shadow_since)
        if policy and not one.active
        else None,
        "problem": {"tone": "bad", "title": "Nothing was changed.", "text": problem}
        if problem
        else None,
        "refusals": refusals,
        "may_administer": may(request.user, "administer", here),
    }
    return page(request, "approvals/policy_version.html", context, status=status)


@login_required
@require_POST
def activate(request: Request, workspace: str, number: int) -> HttpResponse:
    """Put a version in force; the page says which one it saw in force."""
    here = workspace_to("administer", request, workspace)
    one = get_object_or_404(PolicyVersion, workspace=here, number=number)
    try:
        versions.activate(one, by=request.user, seen=request.POST.get("seen", ""))
    except (Invalid, versions.InForceMeanwhile) as wrong:
        return _version(request, here, one, problem=str(wrong), status=409)
    messages.success(request, f"Version {one.number} is in force.")
    return redirect("approvals:policies", workspace=here.slug)


@login_required
@require_POST
def shadow(request: Request, workspace: str, number: int) -> HttpResponse:
    """Judge with a version in the shadow of the one in force, or end that, as `act` says."""
    here = workspace_to("administer", request, workspace)
    one = get_object_or_404(PolicyVersion, workspace=here, number=number)
    if request.POST.get("act") == "end":
        versions.end_shadow(here, by=request.user)
        return redirect("approvals:version", workspace=here.slug, number=number)
    try:
        versions.shadow(one, by=request.user)
    except Invalid as wrong:
        return _version(request, here, one, problem=str(wrong), status=409)
    messages.success(request, f"Version {number} is judged in the shadow: it has no say.")
    return redirect("approvals:version", workspace=here.slug, number=number)


@login_required
@require_POST
def pause(request: Request, workspace: str) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    if not _may_pause(request, here):
        raise NotAllowed("recover", here)
    form = PauseForm(request.POST)
    if not form.is_valid():
        return _page(request, here, pause_form=form, status=422)
    said: dict[str, Any] = form.cleaned_data
    try:
        made = pauses.pause(
            here, said["kind"], said["name"], by=request.user, reason=said["reason"]
        )
    except (ValueError, CannotMove) as wrong:
        form.add_error(None, str(wrong))
        return _page(request, here, pause_form=form, status=409)
    messages.success(request, "Paused: nothing new of it is let through until somebody lifts it.")
    if strange := pauses.unknown(made):
        messages.warning(request, strange)
    return redirect("approvals:policies", workspace=here.slug)


@login_required
@require_POST
def lift(request: Request, workspace: str, pk: int) -> HttpResponse:
    here = workspace_or_404(request, workspace)
    if not _may_pause(request, here):
        raise NotAllowed("recover", here)
    one = get_object_or_404(Pause, workspace=here, pk=pk)
    try:
        pauses.lift(one, by=request.user)
        left = {other.kind for other in pauses.standing_in(here)}
        goes_on = "Other pauses still stand here." if left else "It goes on."
        if PauseKind.WORKSPACE in left:
            goes_on = "Another pause still holds everything here."
        messages.success(request, f"Lifted. {goes_on}")
    except CannotMove:
        messages.error(request, "Somebody has lifted it already.")
    return redirect("approvals:policies", workspace=here.slug)


def _connection_of(here: Workspace, twin: str, known: Collection[str]) -> str:
    """Where the operation that undoes a tool is told of, if it is one of a connection here."""
    name, _, operation = twin.partition(".")
    if name not in known or not operation:
        return ""
    its_page = reverse("connectors:connection", args=[here.slug, name])
    return f"{its_page}?{urlencode({'operation': operation})}"


TOOLS: exporting.Columns = {
    "tool": "tool",
    "classified": "classified",
    "class": "action_class",
    "risk": "risk",
    "answer": "answer",
    "because": "rule",
    "undone_by": "twin",
    "runnable": "runnable",
    "seen": "seen",
    "last_seen_at": "last_seen",
    "undo_verified_at": "last_undone",
    "undo_reported_at": "last_receipt",
    "takes": lambda line: ", ".join(line.takes),
}


@login_required
@require_GET
def tools(request: Request, workspace: str) -> HttpResponseBase:
    """The inventory, a page at a time: every tool ever seen, unclassified first."""
    here = workspace_or_404(request, workspace)
    policy = active(here)
    listed = inventory.listed(here, policy)
    if exporting.is_asked(request):
        export = exporting.Export(
            "tools",
            tuple(TOOLS),
            [one.newest for one in listed],
            lambda newest: exporting.values(inventory.tools(here, policy, newest), TOOLS),
            disclosure.cleaner(request.user, here),
        )
        return exporting.answer(request, export)
    after = request.GET.get("after", "")
    rest = [one for one in listed if one.place() > after]
    shown, pager = page_of(request, rest, inventory.Listed.place)
    pager |= {"back": "First page", "on": "More tools"}
    decided = reverse("approvals:history", args=[here.slug])
    edits = may(request.user, "administer", here)
    editor = reverse("approvals:policy_new", args=[here.slug])
    teach = reverse("recovery:teach", args=[here.slug])
    known = set(Connection.objects.filter(workspace=here).values_list("name", flat=True))
    rows = [
        {
            "line": line,
            "url": f"/w/{here.slug}/insights/?{urlencode({'tool': line.tool})}",
            "calls_url": f"{decided}?{urlencode({'q': finding.word('tool', line.tool)})}",
            "rule_url": f"{editor}?{urlencode({'tool': line.tool})}" if edits else "",
            "teach_url": f"{teach}?{urlencode({'tool': line.tool})}"
            if edits and line.teachable
            else "",
            "twin_url": _connection_of(here, line.twin, known),
            "class_words": line.action_class.replace("external_", "external, ").replace("_", " "),
            "seen": formatting.count(line.seen, inventory.COUNT_MAX),
            "last_seen": formatting.moment(line.last_seen),
            "last_undone": formatting.moment(line.last_undone) if line.last_undone else "",
            "last_receipt": formatting.moment(line.last_receipt) if line.last_receipt else "",
            "takes": ", ".join(line.takes),
            "reshaped": formatting.moment(line.reshaped) if line.reshaped else "",
        }
        for line in inventory.tools(here, policy, [one.newest for one in shown])
    ]
    empty = {
        "icon": "tool",
        "title": "No tool has been used yet.",
        "text": "It appears here with the first action an agent records.",
    }
    context = {"workspace": here, "rows": rows, "pager": pager, "empty": empty}
    context["may_pause"] = _may_pause(request, here)
    return page(request, "approvals/tools.html", context)
