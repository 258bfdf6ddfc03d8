"""What the policy says for all rules, as a form (approvals/document_fields.py)."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms

from approvals import document_fields
from approvals.document_fields import CHOICE, CLAIM, GROUPS, LINES, LIST_PARTS, LISTS_MAX, SETTINGS
from approvals.policy import Invalid, Mistake, editing
from approvals.policy.named_lists import KINDS
from workspaces.forms import WrittenField, offer_too, shown_in, without_hint
from workspaces.models import Team, Workspace

TEXT_CHARACTERS_MAX = 400
LINES_CHARACTERS_MAX = 100_000
TEAMS_MAX = 200


class SettingsForm(forms.Form):
    """Each setting with its meaning, and what counts where it is left empty."""

    def __init__(
        self,
        here: Workspace,
        data: Mapping[str, Any] | None = None,
        *,
        initial: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(data, initial=dict(initial or {}), prefix="all")
        for name, one in SETTINGS.items():
            self.fields[name] = self._field(name, one)
        teams = Team.objects.filter(workspace=here).order_by("name")
        names = list(teams.values_list("name", flat=True)[:TEAMS_MAX])
        team = forms.ChoiceField(
            label=SETTINGS["glass_group"].label,
            required=False,
            choices=[("", "Administrators"), *((one, one) for one in names)],
        )
        offer_too(team, shown_in(self, "glass_group"))
        self.fields["glass_group"] = team
        self.lists = self._lists_shown()
        for n in range(self.lists):
            self._add_list(n)
        for field in self.fields.values():
            without_hint(field)

    def _field(self, name: str, one: document_fields.Setting) -> forms.Field:
        without = f"Empty: {one.without}." if one.without else ""
        words = " ".join(part for part in (one.help, without) if part)
        if one.kind not in {CHOICE, CLAIM}:
            widget = {"rows": 2, "class": "mono", "spellcheck": "false"}
            return WrittenField(
                label=one.label,
                characters_max=LINES_CHARACTERS_MAX if one.kind == LINES else TEXT_CHARACTERS_MAX,
                required=False,
                help_text=words,
                widget=forms.Textarea(attrs=widget) if one.kind == LINES else forms.TextInput(),
            )
        field = forms.ChoiceField(
            label=one.label,
            required=False,
            choices=[("", f"Not said: {one.without}"), *one.choices],
            help_text=one.help,
        )
        offer_too(field, shown_in(self, name))
        return field

    def _lists_shown(self) -> int:
        """So many lists are shown: those that there are, and one to fill in."""
        typed = [n for n in range(LISTS_MAX) if self.add_prefix(f"list_name_{n}") in self.data]
        if typed:
            return typed[-1] + 1
        known = sum(name.startswith("list_name_") for name in self.initial)
        return min(LISTS_MAX, known + 1)

    def _add_list(self, n: int) -> None:
        self.fields[f"list_name_{n}"] = WrittenField(
            label="List", characters_max=TEXT_CHARACTERS_MAX,
            required=False, help_text="As payees; empty: there is none.",
        )  # fmt: skip
        kind = forms.ChoiceField(
            label="Of what", required=False, choices=[("", "text"), *((one, one) for one in KINDS)]
        )
        offer_too(kind, shown_in(self, f"list_kind_{n}"))
        self.fields[f"list_kind_{n}"] = kind
        self.fields[f"list_words_{n}"] = WrittenField(
            label="What it is", characters_max=TEXT_CHARACTERS_MAX, required=False
        )
        self.fields[f"list_entries_{n}"] = WrittenField(
            label="Entries in the document itself", characters_max=LINES_CHARACTERS_MAX,
            help_text="One a line; others stand on the page of the list.",
            widget=forms.Textarea(attrs={"rows": 2, "class": "mono", "spellcheck": "false"}),
            required=False,
        )  # fmt: skip

    @property
    def groups(self) -> list[tuple[str, list[Any], bool]]:
        """Each heading with its fields, and whether something stands in one."""
        found = [(words, list(inside)) for words, inside in GROUPS.items()]
        of_lists = [f"list_{part}_{n}" for n in range(self.lists) for part in LIST_PARTS]
        return [
            (words, [self[name] for name in names],
             any(shown_in(self, name) or self.errors.get(name) for name in names))
            for words, names in [*found, ("Named lists", of_lists)]
        ]  # fmt: skip

    def clean(self) -> dict[str, Any]:
        said = self.cleaned_data
        if not said.get("glass"):
            for name in ("glass_group", "glass_after", "glass_up_to"):
                if said.get(name):
                    self.add_error("glass", "Say that the glass may be broken, or leave the rest.")
                    break
        if not said.get("auto") and (said.get("auto_tools") or said.get("auto_publish")):
            self.add_error("auto", "Say whether anything is undone without a person.")
        names = [said.get(f"list_name_{n}") for n in range(self.lists)]
        for n, own in enumerate(names):
            if own and own in names[:n]:
                self.add_error(f"list_name_{n}", "There is a list of this name above.")
            elif not own and any(said.get(f"list_{part}_{n}") for part in ("words", "entries")):
                self.add_error(f"list_name_{n}", "A list has a name.")
        return said

    def tell(self, problems: Sequence[Mistake]) -> None:
        """Each mistake to its own field; those of rules are told in their rows."""
        for one in problems:
            path = one.path.removeprefix(f"{editing.WRAPPER}.")
            said = self.cleaned_data
            name = document_fields.field_of(path, one.message, said, list(self.fields))
            if name and name in self.fields and not self.has_error(name, one.message):
                self.add_error(name, one.message)


def initial_of(source: str) -> dict[str, str]:
    """What the fields begin with. Raises Invalid where the document cannot be read."""
    return document_fields.fields_of(editing.document_of(source))


def put(source: str, form: SettingsForm) -> editing.EditResult:
    """The document as the form says it. Raises Invalid where it cannot be read."""
    changed = document_fields.changes(editing.document_of(source), form.cleaned_data)
    return editing.with_settings(source, changed)


def told(source: str) -> list[tuple[str, str]]:
    """What the document says for all rules, in words; nothing where it cannot be read."""
    try:
        return document_fields.told(editing.document_of(source))
    except Invalid:
        return []
