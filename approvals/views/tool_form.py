"""One tool of the catalogue as a form (approvals/tool_fields.py), and the catalogue as rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms

from amends.protocol.vocabulary import CLASSES, RISKS
from approvals import tool_fields
from approvals.policy import Invalid, Problem, editing
from approvals.policy.document import SENSITIVITIES
from approvals.policy.editing import CATALOGUES, Row
from approvals.policy.loading import KINDS
from approvals.rules import field_at
from approvals.views.rule_form import GlobField, stamp
from workspaces.forms import WrittenField, choice_of, offer_too, shown_in, without_hint

TOOLS = CATALOGUES[0]
TEXT_CHARACTERS_MAX = 400
EXPRESSION_CHARACTERS_MAX = 2_000
LINES_CHARACTERS_MAX = 20_000
CHOICES = ("class", "risk", "sensitivity", "preview_kind")


def _choice(label: str, words: Sequence[str], without: str, help_text: str = "") -> Any:
    choices = [("", without), *((one, one.replace("_", " ")) for one in words)]
    return forms.ChoiceField(label=label, required=False, choices=choices, help_text=help_text)


def _text(label: str, help_text: str, *, is_long: bool = False) -> Any:
    attrs = {"class": "mono", "spellcheck": "false"}
    return WrittenField(
        label=label,
        required=False,
        characters_max=LINES_CHARACTERS_MAX if is_long else EXPRESSION_CHARACTERS_MAX,
        help_text=help_text,
        widget=forms.Textarea(attrs=attrs | {"rows": 2}) if is_long else forms.TextInput(attrs),
    )


class ToolForm(forms.Form):
    """What the workspace itself says of a tool; agents can only raise it."""

    def __init__(
        self, data: Mapping[str, Any] | None = None, *, initial: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(data, initial=dict(initial or {}), prefix="tool")
        self.fields |= {
            "glob": GlobField(),
            "class": _choice("What it does", CLASSES, "As the agent says, carefully"),
            "risk": _choice("Its risk", RISKS, "As its class says"),
            "untrusted": forms.ChoiceField(
                label="Its results hold what strangers wrote",
                required=False,
                choices=[("", "Not said: no"), ("yes", "Yes"), ("no", "No")],
                help_text="Mail, web pages, documents; conditions say read_untrusted.",
            ),
            "sensitivity": _choice("Its sensitivity", SENSITIVITIES, "Not said"),
            "sensitive": _text("Sensitivity of arguments", "As ssn: restricted.", is_long=True),
            "target": _text("Kind of its target", "As order."),
            "title": _text("In words", "As Send a mail."),
            "preview_kind": _choice("Its card looks like", KINDS, "Plain"),
            "preview_title": _text("Title of the card", 'In CEL, as "To " + args.to.'),
            "preview_amount": _text("Amount", "In CEL, in the smallest unit: args.amount."),
            "preview_currency": _text("Currency", "In CEL, as args.currency."),
            "preview_recipients": _text("Recipients", "In CEL, as args.to."),
            "preview_rows": _text("Rows of the card", "As Subject: args.subject.", is_long=True),
            "at": forms.IntegerField(required=False, min_value=0, widget=forms.HiddenInput()),
            "was": forms.CharField(required=False, strip=False, widget=forms.HiddenInput()),
        }
        for name in CHOICES:
            offer_too(choice_of(self, name), shown_in(self, name))
        for field in self.fields.values():
            without_hint(field)

    def tell(self, problems: Sequence[Problem]) -> None:
        """Each mistake of this tool to its own field."""
        start = f"{TOOLS}."
        for one in problems:
            path = one.path.removeprefix(f"{editing.WRAPPER}.")
            glob = self.cleaned_data.get("glob", "")
            own = next((f"{start}{name}" for name in (glob, f'"{glob}"')
                        if f"{path}.".startswith(f"{start}{name}.")), "")  # fmt: skip
            if own:
                below = path.removeprefix(own).removeprefix(".")
                name = field_at(below, one.message, list(self.fields), tool_fields.FIELDS)
                if below.startswith("sensitivity."):
                    name = "sensitive"
                self.add_error(name or "glob", one.message)


def rows(source: str) -> list[Row]:
    """The tools of a document in its order; none where it cannot be read."""
    try:
        return editing.rows(source, (TOOLS,))
    except Invalid:
        return []


def told(source: str) -> list[dict[str, Any]]:
    """Each tool with its place, and what is said of it in words."""
    found = []
    for at, row in enumerate(rows(source)):
        said = tool_fields.fields_of(row.entry)
        parts = [
            said["class"].replace("_", " "),
            f"{said['risk']} risk" if said["risk"] else "",
            "reads what strangers wrote" if said["untrusted"] == "yes" else "",
            said["sensitivity"],
        ]
        words = ", ".join(filter(None, parts)) or "listed"
        found.append({"at": at, "glob": row.glob, "words": words})
    return found


def initial_of(row: Row, at: int) -> dict[str, Any]:
    """What the fields of a tool begin with."""
    said = tool_fields.fields_of(row.entry)
    chosen = {name: said[name].lower() for name in CHOICES}
    return said | chosen | {"glob": row.glob, "at": at, "was": stamp(row)}


def put(source: str, form: ToolForm) -> editing.Edited | None:
    """The document with the tool of a form; None, said in the form, where it cannot be put there.

    Raises Invalid where the document cannot be read.
    """
    said, known = form.cleaned_data, editing.rows(source, (TOOLS,))
    glob, at = said["glob"], said["at"]
    row = known[at] if at is not None and at < len(known) else None
    if at is not None and (row is None or stamp(row) != said["was"]):
        form.add_error(None, "This tool has changed in the document since you opened it.")
        return None
    if any(one.glob == glob and one is not row for one in known):
        form.add_error("glob", "This tool is listed already.")
        return None
    if row is None:
        return editing.added(source, glob, tool_fields.entry_of({}, said), TOOLS)
    was = tool_fields.fields_of(row.entry)
    kept = {name: was[name] for name in CHOICES if was[name].lower() == said[name]}
    return editing.relocated(source, row, tool_fields.entry_of(row.entry, said | kept), glob, TOOLS)
