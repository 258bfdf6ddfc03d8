"""The editor of the policy: its rules as a table, and the document beside it, which is the same.

Nothing is kept between two requests: the document travels with each, an act in the table changes
its text, and only *save* makes a version.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from approvals import dry_run, rules, versions
from approvals.models import Approval, PolicyVersion
from approvals.policy import (
    Invalid,
    Mistake,
    Policy,
    PolicyUnreadable,
    active,
    editing,
    judge,
)
from approvals.policy.reading import DOCUMENT_CHARACTERS_MAX, spelled
from approvals.rules import PLACES_MAX
from approvals.views import catalogue_form, rule_form, settings_form
from approvals.views.catalogue_form import EntryForm
from approvals.views.rule_form import RuleForm
from approvals.views.settings_form import SettingsForm
from ledger import disclosure
from ledger.models import Action
from workspaces.access import may
from workspaces.forms import WrittenField
from workspaces.free_text import NOTE_CHARACTERS_MAX
from workspaces.models import User, Workspace
from workspaces.pages import Request, is_number, page, workspace_to

UP, DOWN = "up", "down"
F = TypeVar("F", SettingsForm, EntryForm)


class PolicyForm(forms.Form):
    """A document as it is written; every problem with it is shown with its place."""

    source = forms.CharField(
        label="Document",
        strip=False,
        max_length=DOCUMENT_CHARACTERS_MAX,
        widget=forms.Textarea(
            attrs={"rows": 28, "spellcheck": "false", "wrap": "off", "class": "mono"}
        ),
        help_text="JSON or YAML; see docs/policy.md.",
    )
    note = WrittenField(label="Why", characters_max=NOTE_CHARACTERS_MAX, required=False)


@dataclass
class PolicyDraft:
    """What is on the desk of who edits, of one request."""

    here: Workspace
    source: str
    note: str = ""
    seen: int | None = None
    """The newest version when they began; another one by now is told. None: nobody says."""
    call: Action | None = None
    """The call on record from which a rule is made."""
    sees: bool = False
    rule: RuleForm | None = None
    rule_problems: list[Mistake] = field(default_factory=list)
    settings: SettingsForm | None = None
    """What holds for all rules, while it is changed."""
    entry: EntryForm | None = None
    """A tool of the catalogue or a twin, while it is changed."""
    focus: str = ""
    """Which control has the focus then: `up:3`, `open:3`, `add`."""
    whole: bool = False
    """Whether long tables are shown to their end."""
    notice: dict[str, Any] | None = None
    lost: tuple[str, ...] = ()
    form: PolicyForm | None = None
    status: int = 200
    is_same: bool = False
    """Whether what the document means has not changed, so that the dry run stands."""

    def offers(self) -> list[str]:
        return rule_form.offers_of(self.call, sees=self.sees) if self.call else []


@login_required
@require_http_methods(["GET", "POST"])
def edit(request: Request, workspace: str) -> HttpResponse:
    """Write a version, in the table or as a text: check it with a dry run as often as you like,
    then save it.
    """
    here = workspace_to("administer", request, workspace)
    if request.method == "GET":
        return _page(request, _begun(request, here), part=None)
    form = PolicyForm(request.POST)
    posted = request.POST
    draft = PolicyDraft(
        here,
        # A browser sends the ends of lines as CRLF; a document has them as it was written.
        source=posted.get("source", "").replace("\r\n", "\n"),
        note=posted.get("note", ""),
        seen=versions.seen_by(posted),
        call=_call(here, posted.get("call", "")),
        whole="whole" in posted,
        sees=disclosure.sees(request.user, here),
    )
    if not form.is_valid():
        draft.form, draft.status = form, 422
        return _page(request, draft, part="check", rehearses=False)
    if "rule-glob" in posted:
        draft.rule = RuleForm(here, posted, offers=draft.offers())
    if "all-unknown" in posted:
        draft.settings = SettingsForm(here, posted)
    for name, kind in catalogue_form.FORMS.items():
        if f"{name}-glob" in posted:
            draft.entry = kind(here, posted)
    act, _, at = posted.get("act", "").partition(":")
    if act == "save":
        return _save(request, draft)
    if act in ACTS:
        ACTS[act](draft, _number(at))
        return _page(request, draft, part="editor")
    return _page(request, draft, part="check")


def url_of(approval: Approval, person: User) -> str:
    """Where a rule for the tool of a call begins, for who may write one."""
    if not approval.action_id or not may(person, "administer", approval.workspace):
        return ""
    editor = reverse("approvals:policy_new", args=[approval.workspace.slug])
    return f"{editor}?{urlencode({'call': approval.action_id})}"


def _begun(request: Request, here: Workspace) -> PolicyDraft:
    """The document in force, or the version or starter that was asked for; and a rule that is begun
    from a call on record.
    """
    number = _number(request.GET.get("from", ""))
    start = PolicyVersion.objects.filter(workspace=here, number=number).first()
    starter = versions.starter(request.GET.get("starter", ""))
    source = starter or versions.source_of(start or versions.in_force(here))
    tool = request.GET.get("tool", "")
    call = _call(here, request.GET.get("call", "")) or _newest(here, tool) or _named(request, here)
    draft = PolicyDraft(
        here, source, seen=versions.newest_number(here), call=call,
        sees=disclosure.sees(request.user, here), is_same=True,
    )  # fmt: skip
    if call is not None or tool:
        draft.rule = RuleForm(
            here,
            initial=rule_form.beginning(call.tool if call else tool[:200]),
            offers=draft.offers(),
        )
    return draft


def _calls(here: Workspace) -> QuerySet[Action]:
    return Action.objects.filter(workspace=here).exclude(tool="").select_related("agent", "run")


def _call(here: Workspace, text: str) -> Action | None:
    return _calls(here).filter(pk=_number(text)).first()


def _newest(here: Workspace, tool: str) -> Action | None:
    return _calls(here).filter(tool=tool).order_by("-id").first() if tool else None


def _named(request: Request, here: Workspace) -> Action | None:
    """The call that a run's page names."""
    names = {"run__run": request.GET.get("run", ""), "action": request.GET.get("action", "")}
    return _calls(here).filter(**names).first() if all(names.values()) else None


def _number(text: str) -> int:
    return int(text) if is_number(text) else 0


# What is done in the table.


def _add(draft: PolicyDraft, _at: int) -> None:
    draft.rule = RuleForm(
        draft.here,
        initial=rule_form.beginning(draft.call.tool if draft.call else ""),
        offers=draft.offers(),
    )
    draft.is_same = True


def _open(draft: PolicyDraft, at: int) -> None:
    rows = _rows(draft)
    draft.is_same = True
    if at < len(rows):
        initial = rule_form.initial_of(rows[at], at)
        draft.rule = RuleForm(draft.here, initial=initial, offers=draft.offers())


def _whole(draft: PolicyDraft, _at: int) -> None:
    """All rules and entries, from now on; the first that is new has the focus."""
    draft.whole, draft.is_same, draft.focus = True, True, f"open:{rules.ROWS_SHOWN_MAX}"


def _close(draft: PolicyDraft, _at: int) -> None:
    at = draft.rule.data.get("rule-at", "") if draft.rule else ""
    draft.focus = f"open:{at}" if at else "add"
    draft.rule, draft.is_same = None, True


def _put(draft: PolicyDraft, _at: int) -> None:
    """The rule of the form into the document, if it is one; else it stays in the form."""
    form = draft.rule
    if form is None or not form.is_valid():
        draft.status = 422
        return
    try:
        found = rule_form.put(draft.source, form)
    except Invalid as wrong:
        draft.rule_problems, draft.status = wrong.problems, 422
        return
    if found is None:
        form.add_error(None, "This rule has changed in the document since you opened it.")
        draft.status = 422
        return
    edited, own = found
    rows = editing.rows(edited.source)
    at = next(n for n, row in enumerate(rows) if (row.section, row.glob, row.entry) == own)
    problems = rules.problems_of(rows[at], _checked(draft.here, edited.source)[1])
    if problems:
        draft.rule_problems = form.tell(problems, spelled(rows[at].path))
        draft.status = 422
        return
    draft.source, draft.lost = edited.source, edited.lost
    draft.rule, draft.focus = None, f"open:{at}"


def _people(draft: PolicyDraft, _at: int) -> None:
    """One more place for who has to answer, with everything as it was typed."""
    form = draft.rule
    draft.is_same = True
    if form is not None:
        draft.rule = RuleForm(draft.here, initial=form.typed(), offers=draft.offers())
        draft.focus = "people"


def _settings(draft: PolicyDraft, _at: int) -> None:
    draft.is_same = True
    try:
        said = settings_form.fields_of(editing.document_of(draft.source))
        draft.settings = SettingsForm(draft.here, initial=said)
    except Invalid:
        draft.settings = None  # what keeps it from being read is told beside the table


def _settings_put(draft: PolicyDraft, _at: int) -> None:
    """What holds for all rules into the document; with a mistake it stays in the form."""
    if _is_put(draft, draft.settings, settings_form.put):
        draft.settings, draft.focus = None, "settings"


def _settings_close(draft: PolicyDraft, _at: int) -> None:
    draft.settings, draft.focus, draft.is_same = None, "settings", True


def _entry_add(kind: type[EntryForm], draft: PolicyDraft, _at: int) -> None:
    draft.entry, draft.is_same = kind(draft.here, initial={"glob": ""}), True


def _entry_whole(kind: type[EntryForm], draft: PolicyDraft, _at: int) -> None:
    draft.whole, draft.is_same, draft.focus = True, True, f"{kind.name}_add"


def _entry_open(kind: type[EntryForm], draft: PolicyDraft, at: int) -> None:
    draft.is_same = True
    rows = catalogue_form.rows(draft.source, kind)
    if at < len(rows):
        draft.entry = kind(draft.here, initial=catalogue_form.initial_of(kind, rows[at], at))


def _entry_put(kind: type[EntryForm], draft: PolicyDraft, _at: int) -> None:
    """What the form says into the document, if it can be there; else it stays in the form."""
    if _is_put(draft, draft.entry, catalogue_form.put):
        draft.entry, draft.focus = None, f"{kind.name}_add"


def _is_put(
    draft: PolicyDraft, form: F | None, put: Callable[[str, F], editing.EditResult | None]
) -> bool:
    """What a form says into the document, unless it does not fit there: that is told at its field,
    and what keeps the document from being read stands beside the table.
    """
    edited = None
    if form is not None and form.is_valid():
        with suppress(Invalid):
            edited = put(draft.source, form)
    if form is not None and edited is not None:
        form.tell(_checked(draft.here, edited.source)[1])
    if form is None or edited is None or form.errors:
        draft.status = 422
        return False
    draft.source, draft.lost = edited.source, edited.lost
    return True


def _entry_close(kind: type[EntryForm], draft: PolicyDraft, _at: int) -> None:
    draft.entry, draft.focus, draft.is_same = None, f"{kind.name}_add", True


def _entry_remove(kind: type[EntryForm], draft: PolicyDraft, at: int) -> None:
    rows = catalogue_form.rows(draft.source, kind)
    draft.focus = f"{kind.name}_add"
    if at < len(rows):
        edited = editing.removed(draft.source, rows[at].glob, rows[at].place, rows[at].section)
        draft.source, draft.lost = edited.source, edited.lost


def _move(draft: PolicyDraft, at: int, step: int) -> None:
    rows = _rows(draft)
    draft.is_same = True
    if at >= len(rows):
        return
    row = rows[at]
    edited = editing.moved(draft.source, row, step)
    draft.source, draft.lost = edited.source, edited.lost
    own = (row.section, row.glob, row.entry)
    found = [n for n, one in enumerate(_rows(draft)) if (one.section, one.glob, one.entry) == own]
    draft.focus = f"{UP if step < 0 else DOWN}:{found[0] if found else at}"


def _remove(draft: PolicyDraft, at: int) -> None:
    rows = _rows(draft)
    if at >= len(rows):
        return
    row = rows[at]
    edited = editing.removed(draft.source, row.glob, row.place, row.section)
    draft.source, draft.lost = edited.source, edited.lost
    draft.focus = f"open:{max(0, at - 1)}" if len(rows) > 1 else "add"


def _rows(draft: PolicyDraft) -> list[editing.RulePosition]:
    try:
        return editing.rows(draft.source)
    except Invalid:
        return []


ENTRY_ACTS = {
    "add": _entry_add, "open": _entry_open, "put": _entry_put, "close": _entry_close,
    "remove": _entry_remove, "whole": _entry_whole,
}  # fmt: skip
ACTS: dict[str, Callable[[PolicyDraft, int], None]] = {
    "add": _add, "open": _open, "close": _close, "put": _put,
    UP: partial(_move, step=-1), DOWN: partial(_move, step=1),
    "remove": _remove, "people": _people, "whole": _whole,
    "settings": _settings, "settings_put": _settings_put, "settings_close": _settings_close,
    **{
        f"{name}_{act}": partial(do, kind)
        for name, kind in catalogue_form.FORMS.items()
        for act, do in ENTRY_ACTS.items()
    },
}  # fmt: skip


def _save(request: Request, draft: PolicyDraft) -> HttpResponse:
    if any(one is not None for one in (draft.rule, draft.settings, draft.entry)):
        draft.notice = {
            "tone": "wait",
            "title": "Nothing was saved.",
            "text": "A form is open and not in the table yet: put it in, or close it.",
        }
        draft.status = 422
        return _page(request, draft, part="editor")
    try:
        version = versions.save(
            draft.here, draft.source, by=request.user, note=draft.note, after=draft.seen
        )
    except versions.SavedMeanwhile as other:
        draft.notice = other.notice()
        draft.seen, draft.status = other.version.number, 409
        return _page(request, draft, part="editor")
    except Invalid:
        draft.status = 422
        return _page(request, draft, part="check")
    messages.success(request, f"Version {version.number} is saved. It is not in force yet.")
    return redirect("approvals:version", workspace=draft.here.slug, number=version.number)


def _checked(here: Workspace, source: str) -> tuple[Policy | None, list[Mistake]]:
    try:
        return versions.check_new(here, source), []
    except Invalid as wrong:
        return None, wrong.problems


def rehearsed(here: Workspace, policy: Policy, **over: Any) -> dry_run.PolicyDryRun | None:
    """The dry run against what is in force; None where that cannot be read."""
    try:
        return dry_run.rehearse(here, policy, active(here), **over)
    except PolicyUnreadable:
        return None


def _page(
    request: Request, draft: PolicyDraft, *, part: str | None, rehearses: bool = True
) -> HttpResponse:
    here = draft.here
    is_first = request.method == "GET"
    policy, problems = (None, []) if is_first or not rehearses else _checked(here, draft.source)
    keeps = draft.is_same and bool(request.htmx)
    initial = {"source": draft.source, "note": draft.note}
    is_told = draft.status != HTTPStatus.OK or is_first or not problems
    said = draft.status if is_told else HTTPStatus.UNPROCESSABLE_ENTITY
    context = {
        "workspace": here,
        "form": draft.form or PolicyForm(initial=initial),
        "table": rules.of(
            draft.source, problems, whole=draft.whole, in_hand=draft.focus.partition(":")[2]
        ),
        "whole": draft.whole,
        "rule": draft.rule,
        "more_people": draft.rule is not None and draft.rule.places < PLACES_MAX,
        "rule_problems": draft.rule_problems,
        "settings": draft.settings,
        "entry": draft.entry,
        "catalogues": catalogue_form.catalogues(draft.source, draft.entry, whole=draft.whole),
        "told_settings": settings_form.told(draft.source),
        "rule_is_new": draft.rule is not None and draft.rule["at"].value() in {None, ""},
        "call": _call_shown(draft) if draft.rule else None,
        "call_pk": draft.call.pk if draft.call else "",
        "call_words": _told_of_call(draft, policy),
        "focus": draft.focus,
        "notice": draft.notice,
        "lost": draft.lost,
        "seen": draft.seen,
        "problems": problems,
        "rehearsal": rehearsed(here, policy) if policy and not keeps else None,
        "is_good": policy is not None,
        "keeps_check": keeps and not problems,
        "is_alone": part == "check" and bool(request.htmx),
        "starters": versions.STARTERS,
        "refused": said in {409, 422},
    }
    return page(request, "approvals/policy_edit.html", context, part=part, status=said)


def _call_shown(draft: PolicyDraft) -> dict[str, Any] | None:
    """The call that a rule is made from: whose, of which run, with what."""
    call = draft.call
    if call is None:
        return None
    args = json.dumps(call.args, indent=2, ensure_ascii=False) if call.args else ""
    return {
        "tool": call.tool,
        "run": call.run.run,
        "agent": call.agent.name if call.agent else "the desk",
        "args": args if draft.sees else "",
    }


def _told_of_call(draft: PolicyDraft, policy: Policy | None) -> str:
    """What becomes of the call on record under the document, beside what is in force."""
    if draft.call is None or policy is None:
        return ""
    try:
        was = judge(active(draft.here), dry_run.call_of(draft.call))
    except PolicyUnreadable:
        return ""
    becomes = judge(policy, dry_run.call_of(draft.call))
    words = {name: said for name, (_, said) in rules.VERDICT_WORDS.items()}
    return (
        f"{words[was.approval]} as it stands, {words[becomes.approval].lower()} by this:"
        f" {becomes.why}"
    )
