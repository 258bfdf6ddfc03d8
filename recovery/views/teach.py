"""Teach the desk to undo this: a twin made of a call on record, rehearsed, saved as a version."""

import json
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html
from django.views.decorators.http import require_http_methods

from approvals import versions
from approvals.policy import Invalid
from approvals.policy.expressions import EXPRESSION_CHARACTERS_MAX
from approvals.views.rule_form import GlobField
from ledger import disclosure
from ledger.models import Effect
from recovery.models import Case, CaseState
from recovery.planning import teaching
from recovery.run_facts.runs import RunFacts
from recovery.run_facts.sentences import listed
from recovery.views import request_context
from workspaces.access import may, people_with, require
from workspaces.forms import OneLine, WrittenField, choice_of, without_hint
from workspaces.free_text import NOTE_CHARACTERS_MAX
from workspaces.models import User, Workspace
from workspaces.pages import Request, is_number, page, workspace_or_404

ARGUMENT = "arg_"
FREE = "arguments"
BRACED = re.compile(r"\{[^}]*\}")
"""What a title takes from a call."""
ARGUMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
WORDS_CHARACTERS_MAX = 400


class RehearsalOnPage(NamedTuple):
    """A rehearsal, and the comments of the policy that its change would lose."""

    rehearsed: Sequence[teaching.Rehearsed]
    lost: Sequence[str]


class ArgumentLines(forms.CharField):
    """Arguments of an operation that declares none: a name and an expression on each line."""

    def __init__(self) -> None:
        super().__init__(
            label="Any arguments",
            required=False,
            max_length=EXPRESSION_CHARACTERS_MAX,
            widget=forms.Textarea({"class": "mono", "rows": 4, "spellcheck": "false"}),
            help_text="It declares none. One a line: name = expression, as in to = before. Empty:"
            " it gets the target alone.",
        )

    def clean(self, value: Any) -> dict[str, str]:
        found = {}
        for line in filter(None, map(str.strip, super().clean(value).splitlines())):
            name, equals, source = (part.strip() for part in line.partition("="))
            if not (equals and source and ARGUMENT_NAME.fullmatch(name)) or name in found:
                raise forms.ValidationError(f"“{line}” is not: name = expression, each name once.")
            found[name] = source
        return found


class TeachForm(forms.Form):
    """Which calls, undone by which operation, with which arguments."""

    glob = GlobField()
    target = OneLine(
        label="Kind of target", max_length=120, required=False, help_text="Empty: every kind."
    )
    operation = forms.ChoiceField(label="Undone by")
    words = WrittenField(
        label="What it does, in a sentence", characters_max=WORDS_CHARACTERS_MAX, required=False
    )

    def __init__(self, here: Workspace, effect: Effect, data: Mapping[str, Any] | None) -> None:
        initial = {"glob": effect.action.tool, "target": effect.target_type}
        super().__init__(data, initial=initial)
        offered = teaching.operations(here)
        choice_of(self, "operation").choices = [
            ("", "Choose…"),
            *((name, f"{name}: {BRACED.sub('…', one.title)}") for name, one in offered.items()),
        ]
        if not offered:
            self.fields["operation"].help_text = (
                "No connection offers an operation yet: an administrator makes one under"
                " Connections."
            )
        chosen = offered.get(str(self.data.get("operation", "")))
        self.is_chosen = chosen is not None
        self.arguments = teaching.arguments_of(chosen) if chosen else []
        if self.is_chosen and not self.arguments:  # it takes any
            self.fields[FREE] = ArgumentLines()
        for one in self.arguments:
            self.fields[ARGUMENT + one.name] = WrittenField(
                label=one.name,
                characters_max=EXPRESSION_CHARACTERS_MAX,
                required=False,
                initial=teaching.guessed(effect, one.name),
                widget=forms.TextInput(attrs={"class": "mono", "spellcheck": "false"}),
                help_text="" if one.required else "Left out where it is empty.",
            )
            without_hint(self.fields[ARGUMENT + one.name], really=one.required)

    @property
    def of_call(self) -> list[Any]:
        """The fields of the operation's arguments."""
        free = [self[FREE]] if FREE in self.fields else []
        return [self[ARGUMENT + one.name] for one in self.arguments] + free

    def twin(self) -> tuple[str, dict[str, Any]]:
        """The glob, and what stands under it."""
        said = self.cleaned_data
        connection, _, operation = said["operation"].partition(".")
        args = {one.name: said[ARGUMENT + one.name] for one in self.arguments} | said.get(FREE, {})
        twin = {
            **({"target": said["target"]} if said["target"] else {}),
            "connection": connection,
            "operation": operation,
            "args": {name: source for name, source in args.items() if source},
            **({"words": said["words"]} if said["words"] else {}),
        }
        return said["glob"], twin


def urls(facts: RunFacts, effects: Sequence[Effect | None], person: User) -> list[str]:
    """Where each of these is taught, for who may and where only a twin is missing; else nothing.

    One twin undoes all that a tool did to targets of a kind, so only the first of them has it.
    """
    found = [""] * len(effects)
    if not may(person, "administer", facts.run.workspace):
        return found
    actions = {action.pk: action for action in facts.actions}
    address = reverse("recovery:teach", args=[facts.run.workspace.slug])
    kinds: set[tuple[str, str]] = set()
    for i, effect in enumerate(effects):
        if effect is None:
            continue
        action = actions[effect.action_id]
        kind = action.tool, effect.target_type
        if kind not in kinds and teaching.may_be_taught(facts, action, effect):
            kinds.add(kind)
            found[i] = f"{address}?{urlencode({'effect': effect.pk})}"
    return found


def teachers(here: Workspace) -> str:
    """`Ada Nilsson and Noor Haddad can teach the desk how`: for who may not."""
    named = [str(one) for one in people_with("administer", here).order_by("name")]
    return f"{listed(named) or 'An administrator'} can teach the desk how"


@login_required
@require_http_methods(["GET", "POST"])
def teach(request: Request, workspace: str) -> HttpResponse:
    """A twin for the tool of a call: choose the operation, map its arguments, rehearse, save."""
    here = workspace_or_404(request, workspace)
    require(request.user, "administer", here)
    effect = _effect(request, here)
    if request.method == "GET":
        return _show(request, here, effect, TeachForm(here, effect, None))
    # What is chosen anew begins with guesses; what was typed for another operation is not sent.
    act, data = request.POST.get("act", ""), request.POST.copy()
    form = TeachForm(here, effect, data)
    for name in [ARGUMENT + one.name for one in form.arguments]:
        data.setdefault(name, form.fields[name].initial)
    if act == "choose" or not form.is_valid():
        return _show(request, here, effect, form, status=200 if act == "choose" else 422)
    glob, twin = form.twin()
    source = versions.source_of(versions.in_force(here))
    try:
        edited = teaching.with_twin(source, glob, twin)
        policy = versions.check_new(here, edited.source)
    except Invalid as wrong:
        return _show(request, here, effect, form, problems=wrong.problems, status=422)
    rehearsed = teaching.rehearse(effect, policy)
    tried = RehearsalOnPage(rehearsed, edited.lost)
    if act != "save":
        return _show(request, here, effect, form, tried)
    if not teaching.succeed(rehearsed):
        return _show(request, here, effect, form, tried, refused=True, status=422)
    return _save(request, here, effect, form, tried, edited.source)


def _save(
    request: Request,
    here: Workspace,
    effect: Effect,
    form: TeachForm,
    tried: RehearsalOnPage,
    source: str,
) -> HttpResponse:
    """As the next version, unless somebody saved one since this was begun."""
    glob, case = form.cleaned_data["glob"], _case(request, effect)
    words = f"Teaches how {glob} is undone: by {form.cleaned_data['operation']}"
    try:
        note, seen = words[:NOTE_CHARACTERS_MAX], versions.seen_by(request.POST)
        version = versions.save(here, source, by=request.user, note=note, after=seen)
    except versions.SavedMeanwhile as other:
        return _show(request, here, effect, form, tried, other=other, status=409)
    if case and case.state != CaseState.CLOSED and may(request.user, "recover", here):
        told = (
            'Saved, not yet in force. Once it is, <a href="{}compensate/">undo the case by it</a>.'
        )
        messages.success(request, format_html(told, request_context.case_url(case)))
    return redirect("approvals:version", workspace=here.slug, number=version.number)


def _case(request: Request, effect: Effect) -> Case | None:
    """The case to which this leads back; none where it was begun on the page of tools."""
    if (request.POST or request.GET).get("tool"):
        return None
    return Case.objects.filter(run=effect.action.run_id).select_related("workspace", "run").first()


def _effect(request: Request, here: Workspace) -> Effect:
    said = request.POST.get("effect") or request.GET.get("effect", "")
    if is_number(said):
        found = teaching.effect_of(here, int(said))
    else:
        found = teaching.newest_of(here, request.GET.get("tool", ""))
    if found is None:
        raise Http404("No call on record shows what would have to be undone.")
    return found


def _show(
    request: Request,
    here: Workspace,
    effect: Effect,
    form: TeachForm,
    tried: RehearsalOnPage | None = None,
    *,
    problems: Sequence[Any] = (),
    refused: bool = False,
    other: versions.SavedMeanwhile | None = None,
    status: int = 200,
) -> HttpResponse:
    sees = disclosure.sees(request.user, here)
    action = effect.action
    connection, _, operation = str(form.data.get("operation", "")).partition(".")
    case = _case(request, effect)
    context = {
        "workspace": here,
        "case_url": request_context.case_url(case) if case else "",
        "form": form,
        "effect": effect.pk,
        "tool": action.tool,
        "target": f"{effect.target_type} {effect.target_id}",
        "run": action.run.run,
        "known": _known(effect, sees=sees),
        "problems": problems,
        "rehearsed": _told(tried.rehearsed, sees=sees) if tried else None,
        "works": tried is not None and teaching.succeed(tried.rehearsed),
        "sees": sees,
        "lost": tried.lost if tried else (),
        "notice": other.notice() if other else None,
        "seen": other.version.number if other else _begun_with(request, here),
        "not_saved": refused,
        "sandbox_url": f"{reverse('connectors:connection', args=[here.slug, connection])}?"
        f"{urlencode({'operation': operation})}"
        if operation and form.is_chosen
        else "",
        "refused": status != HTTPStatus.OK,
    }
    return page(request, "recovery/teach.html", context, status=status)


def _begun_with(request: Request, here: Workspace) -> int:
    """The newest version when they began: what their page says, or of a new page now."""
    said = versions.seen_by(request.POST)
    return versions.newest_number(here) if said is None else said


def _told(rehearsed: Sequence[teaching.Rehearsed], *, sees: bool) -> list[dict[str, Any]]:
    """Each call of the rehearsal, with its arguments for who sees payloads; what several lack in a
    row is said once, `of` them all.
    """
    shown: list[dict[str, Any]] = []
    for one in rehearsed:
        of = f"{one.target}, run {one.run}"
        if one.lacks and shown and shown[-1]["lacks"] == one.lacks:
            shown[-1]["of"].append(of)
            continue
        args = json.dumps(one.args, indent=2, ensure_ascii=False, sort_keys=True) if sees else ""
        shown.append({"title": one.title, "lacks": one.lacks, "args": args, "of": [of]})
    return shown


def _known(effect: Effect, *, sees: bool) -> list[dict[str, str]]:
    """What an argument can be taken from, with its values for who sees them."""
    action = effect.action
    facts = [("target.id", effect.target_id), ("target.type", effect.target_type)]
    for name, known in (("args", action.args), ("result", action.result)):
        if isinstance(known, dict):
            facts += [(f"{name}.{one}", value) for one, value in known.items()]
    return [
        {"name": name, "value": json.dumps(value, ensure_ascii=False)[:200] if sees else ""}
        for name, value in facts
    ]
