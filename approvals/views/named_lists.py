"""Named lists: which there are, what stands on one, who changed it, and changing it."""

from operator import itemgetter
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import F, QuerySet
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from approvals import named_lists
from approvals.models import ListChange, ListEntry, NamedList
from approvals.policy.named_lists import HIDDEN_KINDS
from ledger import desk_events, disclosure
from workspaces import exporting, formatting
from workspaces.access import may, require
from workspaces.forms import WrittenField
from workspaces.free_text import NOTE_CHARACTERS_MAX, InvalidInput
from workspaces.models import Workspace
from workspaces.pages import (
    Request,
    is_number,
    page,
    page_by_number,
    whole,
    workspace_or_404,
    workspace_to,
)

CHANGES_SHOWN_MAX = 50
VALUES_SHOWN_MAX = 50
PASTED_CHARACTERS_MAX = 2_000_000
HIDDEN = "hidden: needs edit_lists or view_sensitive"


KIND_WORDS = {
    "text": "texts, compared without regard to capitals",
    "mail": "mail addresses",
    "domain": "domains, of mail addresses and links, too",
    "iban": "bank accounts (IBAN), kept by their marks",
    "card": "card numbers, kept by their marks",
}


class NewListForm(forms.Form):
    name = forms.CharField(
        label="Name",
        max_length=60,
        help_text="Conditions call it lists.NAME: small letters, digits and _, such as payees.",
    )
    kind = forms.ChoiceField(
        label="What stands on it",
        choices=list(KIND_WORDS.items()),
    )


class AddForm(forms.Form):
    entries = forms.CharField(
        label="Put on the list",
        strip=False,
        max_length=PASTED_CHARACTERS_MAX,
        widget=forms.Textarea(attrs={"rows": 6, "spellcheck": "false", "class": "mono"}),
        help_text="One a line; behind a semicolon or a tab, what it is, as in a pasted sheet.",
    )
    note = WrittenField(label="Why", characters_max=NOTE_CHARACTERS_MAX, required=False)


NOTHING_CHOSEN = "Choose in the list what is to be taken off."


EXPORTED = ("name", "kind", "words", "count", "written_out", "version", "rules", "changed_at", "by")


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def index(request: Request, workspace: str) -> HttpResponseBase:
    """The lists, and a form for a new one."""
    here = workspace_or_404(request, workspace)
    form = NewListForm(request.POST if request.method == "POST" else None)
    status = 200
    if request.method == "POST":
        require(request.user, "edit_lists", here)
        if form.is_valid():
            try:
                made = named_lists.create(
                    here, form.cleaned_data["name"], form.cleaned_data["kind"]
                )
                messages.success(request, "The list is made. Put its first entries on it below.")
                return redirect("approvals:named_list", workspace=here.slug, name=made.name)
            except InvalidInput as wrong:
                form.add_error("name", str(wrong))
        status = 422
    rows = _listed(here)
    if exporting.is_asked(request):
        columns: exporting.Columns = {column: itemgetter(column) for column in EXPORTED}
        clean = disclosure.cleaner(request.user, here)
        return exporting.sheet(request, "lists", rows, columns, clean)
    context = {
        "workspace": here,
        "rows": rows,
        "pager": whole(request, rows),
        "form": form,
        "may_edit": may(request.user, "edit_lists", here),
        "empty": {
            "icon": "policy",
            "title": "No list yet.",
            "text": "Keep whom agents may pay, write to or visit on a list, and let a rule ask only"
            ' about the others: when: "!(args.iban in lists.payees)".',
        },
    }
    return page(request, "approvals/named_lists.html", context, status=status)


def _listed(here: Workspace) -> list[dict[str, Any]]:
    """Lists that are kept, and those that the policy names."""
    policy = named_lists.policy_now(here)
    kept = {one.name: one for one in NamedList.objects.filter(workspace=here).order_by("name")}
    last = {
        one.list_id: one
        for one in ListChange.objects.filter(
            list__in=kept.values(), version=F("list__version")
        ).select_related("by")
    }
    rows = []
    for name in sorted({*kept, *policy.named_lists}):
        one, declared = kept.get(name), policy.named_lists.get(name)
        changed = last.get(one.pk) if one else None
        rows.append(
            {
                "name": name,
                "url": reverse("approvals:named_list", args=[here.slug, name]),
                "kind": one.kind if one else declared.kind if declared else "",
                "count": formatting.count(one.count if one else 0),
                "written_out": len(declared.entries) if declared else 0,
                "version": one.version if one else 0,
                "words": declared.words if declared else "",
                "rules": len(named_lists.rules_about(policy, name)),
                "changed_at": changed.at if changed else None,
                "changed": formatting.moment(changed.at) if changed else "",
                "by": str(changed.by) if changed and changed.by else "",
            }
        )
    return rows


@login_required
@require_GET
def one_list(request: Request, workspace: str, name: str) -> HttpResponseBase:
    here = workspace_or_404(request, workspace)
    if exporting.is_asked(request):
        kept = get_object_or_404(NamedList, workspace=here, name=name)
        sees = named_lists.reader_sees(request.user, here)
        rows = _entries(request, here, kept, sees=sees)
        columns: exporting.Columns = {
            "value": lambda one: one.shown if sees else HIDDEN,
            "what_it_is": lambda one: one.label if sees else "",
            "since_version": "since",
        }
        clean = disclosure.cleaner(request.user, here)
        return exporting.sheet(request, f"list-{name}", rows, columns, clean)
    return _page(request, here, name)


@login_required
@require_POST
def change(request: Request, workspace: str, name: str) -> HttpResponse:
    """Put on what was pasted, or take off what was chosen; nothing where the list has changed."""
    here = workspace_to("edit_lists", request, workspace)
    declared = named_lists.policy_now(here).named_lists.get(name)
    kept = NamedList.objects.filter(workspace=here, name=name).first()
    if kept is None and declared is not None:
        kept = named_lists.create(here, name, declared.kind)
    if kept is None:
        return _page(request, here, name)
    chosen = request.POST.getlist("remove")
    seen = request.POST.get("version", "")
    if request.POST.get("act") == "remove" and not chosen:
        problem = {"tone": "bad", "title": "Nothing was changed.", "text": NOTHING_CHOSEN}
        return _page(request, here, name, problem=problem, status=422)
    form = AddForm(request.POST if not chosen else None)
    try:
        if chosen or form.is_valid():
            changed = named_lists.change(
                kept,
                by=request.user,
                add=[] if chosen else named_lists.read_lines(form.cleaned_data["entries"]),
                remove=chosen,
                note=request.POST.get("note", ""),
                seen=int(seen) if chosen and is_number(seen) else None,
            )
            messages.success(request, _told(changed))
            return redirect("approvals:named_list", workspace=here.slug, name=name)
    except InvalidInput as wrong:
        problem = {"tone": "bad", "title": "Nothing was changed.", "text": str(wrong)}
        return _page(request, here, name, form=form, problem=problem, status=422)
    return _page(request, here, name, form=form, status=422)


def _told(changed: ListChange | None) -> str:
    if changed is None:
        return "Nothing changed: it stood on the list already, or was off it."
    moved = [
        f"{formatting.count(many)} {where}"
        for many, where in ((changed.added, "on"), (changed.removed, "off"))
        if many
    ]
    return f"Version {changed.version}: {' and '.join(moved)}. Rules go by it from now on."


def _entries(
    request: Request, here: Workspace, kept: NamedList, *, sees: bool
) -> QuerySet[ListEntry]:
    """What stands on it and is looked for; who does not see values cannot look for one."""
    q = request.GET.get("q", "") if sees else ""
    return named_lists.search(kept, q, desk_events.masking_key(here))


def _page(
    request: Request,
    here: Workspace,
    name: str,
    *,
    form: forms.Form | None = None,
    problem: dict[str, Any] | None = None,
    status: int = 200,
) -> HttpResponse:
    policy = named_lists.policy_now(here)
    declared = policy.named_lists.get(name)
    rows = NamedList.objects.filter(workspace=here, name=name)
    kept = rows.first() if declared is not None else get_object_or_404(rows)
    edits = may(request.user, "edit_lists", here)
    sees = named_lists.reader_sees(request.user, here)
    entries = _entries(request, here, kept, sees=sees) if kept else ListEntry.objects.none()
    shown, pager = page_by_number(request, entries)
    kind = kept.kind if kept else declared.kind if declared else ""
    context = {
        "workspace": here,
        "name": name,
        "kind_words": KIND_WORDS.get(kind, ""),
        "hides": kind in HIDDEN_KINDS,
        "words": declared.words if declared else "",
        "is_declared": declared is not None,
        "written_out": len(declared.entries) if declared else 0,
        "rules": [one.words or one.in_words() for one in named_lists.rules_about(policy, name)],
        "version": kept.version if kept else 0,
        "digest": formatting.digest(kept.digest) if kept and kept.digest else "",
        "count": formatting.count(kept.count if kept else 0),
        "mismatch": bool(kept and declared and kept.kind != declared.kind),
        "has_lost": bool(kept and named_lists.holds_lost(kept)),
        "q": request.GET.get("q", "") if sees else "",
        "sees": sees,
        "may_edit": edits,
        "problem": problem,
        "form": form or AddForm(),
        "rows": [_row(one, sees=sees) for one in shown],
        "pager": pager,
        "changes": _changes(request, kept, sees=sees) if kept else [],
    }
    return page(request, "approvals/named_list.html", context, status=status)


def _row(entry: ListEntry, *, sees: bool) -> dict[str, Any]:
    return {
        "key": entry.key,
        "shown": entry.shown if sees else HIDDEN,
        "label": entry.label if sees else "",
        "since": entry.since,
    }


def _changes(request: Request, kept: NamedList, *, sees: bool) -> list[dict[str, Any]]:
    """The history, newest first; the values of a version for whoever sees them."""
    changes = list(named_lists.history(kept)[:CHANGES_SHOWN_MAX])
    came, went = (
        named_lists.of_versions(kept, [one.version for one in changes], VALUES_SHOWN_MAX)
        if sees
        else ({}, {})
    )
    return [
        {
            "version": one.version,
            "digest": formatting.digest(one.digest),
            "by": str(one.by or "the desk"),
            "at": formatting.moment(one.at),
            "note": one.note,
            "added": one.added,
            "removed": one.removed,
            "came": [_row(entry, sees=sees) for entry in came.get(one.version, ())],
            "went": [_row(entry, sees=sees) for entry in went.get(one.version, ())],
            "has_more": max(one.added, one.removed) > VALUES_SHOWN_MAX,
        }
        for one in changes
    ]
