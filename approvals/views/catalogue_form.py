"""What a document says of tools by their globs, as rows and as forms: the catalogue, and how calls
are undone. As with a rule (approvals/rules.py) what nobody changed keeps its spelling.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

from django import forms

from amends.protocol.vocabulary import CLASSES, RISKS
from approvals.policy import Invalid, Mistake, editing
from approvals.policy.condition_types import SENSITIVITIES
from approvals.policy.editing import CATALOGUES, RulePosition
from approvals.policy.expressions import EXPRESSION_CHARACTERS_MAX
from approvals.policy.loading import KINDS
from approvals.policy.reading import Path, spelled
from approvals.rules import (
    ROWS_SHOWN_MAX,
    as_claim,
    as_text,
    claim_of,
    field_at,
    lines_of,
    members,
    merged,
    pairs_of,
    typed,
    value_at,
    without_line,
)
from approvals.rules import put as put_value
from approvals.views.rule_form import GlobField, stamp
from connectors.contract import Reversibility
from connectors.models import Connection
from workspaces.forms import WrittenField, choice_of, offer_too, shown_in, without_hint
from workspaces.models import Workspace

TOOLS, TWINS = CATALOGUES
Entry = Mapping[str, Any]
CLAIMS = frozenset({"untrusted"})
LINES = frozenset({"sensitive", "preview_rows", "args", "probe_args"})
"""Fields that hold `name: value` a line."""
LINES_CHARACTERS_MAX = 20_000


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


class EntryForm(forms.Form):
    """One entry under a glob, and what the editor says of such entries."""

    name: str
    """As acts and fields begin: `tool_put`, `tool-glob`."""
    section: str
    title: str
    caption: str
    column: str
    empty: str
    one_per_glob: bool
    choices: Sequence[str]
    paths: Mapping[str, str]
    """Where in an entry each field stands."""
    do_not_call_in_templates = True
    """A page speaks of the class itself: of its name and its words."""

    def __init__(
        self,
        here: Workspace,
        data: Mapping[str, Any] | None = None,
        *,
        initial: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(data, initial=dict(initial or {}), prefix=self.name)
        self.place: Path = ()
        """Where the entry stands in the document, once it is put there."""
        self.fields |= {
            "glob": GlobField(),
            **self.offered(here),
            "at": forms.IntegerField(required=False, min_value=0, widget=forms.HiddenInput()),
            "was": forms.CharField(required=False, strip=False, widget=forms.HiddenInput()),
        }
        for name in self.choices:
            offer_too(choice_of(self, name), shown_in(self, name))
        for field in self.fields.values():
            without_hint(field)

    def offered(self, here: Workspace) -> dict[str, forms.Field]:
        raise NotImplementedError

    @staticmethod
    def words(said: Mapping[str, str]) -> str:
        """An entry in a few words, for its row."""
        raise NotImplementedError

    @classmethod
    def fields_of(cls, entry: Entry) -> dict[str, str]:
        """What the fields say of an entry, each as a text; names with values are `name: value` a
        line, without those whose value is an object or a list.
        """
        found = {}
        for name, path in cls.paths.items():
            said = lines_of if name in LINES else as_claim if name in CLAIMS else as_text
            found[name] = said(value_at(entry, path))
        return found

    @classmethod
    def entry_of(cls, old: Entry, said: Mapping[str, Any]) -> dict[str, Any]:
        """The entry that the fields say, where `old` stood."""
        now, changed = typed(cls.fields_of(old), said, cls.paths)
        new, inside = dict(old), dict[str, dict[str, Any]]()
        for name, path in cls.paths.items():
            if name not in changed:
                continue
            value: Any = claim_of(now[name]) if name in CLAIMS else now[name]
            if name in LINES:
                value = without_line(value_at(old, path)) | pairs_of(now[name]) or None
            top, _, member = path.partition(".")
            if member:
                inside.setdefault(top, {})[member] = value
            else:
                put_value(new, top, value)
        for top, changes in inside.items():
            put_value(new, top, merged(old.get(top), changes) or None)
        return new

    def tell(self, problems: Sequence[Mistake]) -> None:
        """Each mistake of this entry to its own field."""
        own = spelled(self.place)
        for one in problems:
            if one.path == own or one.path.startswith((f"{own}.", f"{own}[")):
                below = one.path.removeprefix(own).removeprefix(".")
                known = field_at(below, one.message, list(self.fields), self.paths)
                self.add_error(self.field_of(below) or known or "glob", one.message)
            elif one.path == spelled(self.place[:-1]):  # of several under one glob
                self.add_error("glob", one.message)

    def field_of(self, below: str) -> str | None:
        """The field of a path below the entry that `paths` do not tell."""


class ToolForm(EntryForm):
    """What the workspace itself says of a tool; agents can only raise it."""

    name = "tool"
    section = TOOLS
    title = "Tools"
    caption = "The tools that the policy lists"
    column = "What it is"
    empty = "None is listed: what an agent says of a tool counts, carefully."
    one_per_glob = True
    choices = ("class", "risk", "sensitivity", "preview_kind")
    paths = {
        "class": "class",
        "risk": "risk",
        "target": "target",
        "title": "title",
        "untrusted": "reads_untrusted",
        "sensitivity": "sensitivity.tool",
        "sensitive": "sensitivity",
        "preview_kind": "preview.kind",
        "preview_title": "preview.title",
        "preview_amount": "preview.amount",
        "preview_currency": "preview.currency",
        "preview_recipients": "preview.recipients",
        "preview_rows": "preview.rows",
    }

    def offered(self, here: Workspace) -> dict[str, forms.Field]:
        return {
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
        }

    def field_of(self, below: str) -> str | None:
        return "sensitive" if below.startswith("sensitivity.") else None

    @staticmethod
    def words(said: Mapping[str, str]) -> str:
        parts = [
            said["class"].replace("_", " "),
            f"{said['risk']} risk" if said["risk"] else "",
            "reads what strangers wrote" if said["untrusted"] == "yes" else "",
            said["sensitivity"],
        ]
        return ", ".join(filter(None, parts)) or "listed"

    @classmethod
    def fields_of(cls, entry: Entry) -> dict[str, str]:
        """A sensitivity by itself is the tool's; among those of arguments it is named `tool`."""
        level = entry.get("sensitivity")
        of_args = members(level)
        own = of_args.pop("tool", None) if of_args else level
        told = {"sensitivity": as_text(own), "sensitive": lines_of(of_args)}
        return super().fields_of(entry) | told

    @classmethod
    def entry_of(cls, old: Entry, said: Mapping[str, Any]) -> dict[str, Any]:
        new = super().entry_of(old, said)
        now, changed = typed(cls.fields_of(old), said, ("sensitivity", "sensitive"))
        if changed:
            own = {"tool": now["sensitivity"]} if now["sensitivity"] else {}
            of_args = without_line(old.get("sensitivity")) | pairs_of(now["sensitive"])
            put_value(new, "sensitivity", {**own, **of_args} if of_args else now["sensitivity"])
        return new


class TwinForm(EntryForm):
    """Which call undoes what a tool did, and which one finds out whether it was done."""

    name = "twin"
    section = TWINS
    title = "How calls are undone"
    caption = "The twins of tools"
    column = "What undoes it"
    empty = "Nothing is said: only what agents name as a way back can be undone."
    one_per_glob = False
    choices = ("connection", "probe_connection", "reversibility")
    paths = {
        "target": "target",
        "connection": "connection",
        "operation": "operation",
        "reversibility": "reversibility",
        "words": "words",
        "args": "args",
        "probe_connection": "probe.connection",
        "probe_operation": "probe.operation",
        "probe_args": "probe.args",
    }

    def offered(self, here: Workspace) -> dict[str, forms.Field]:
        names = list(Connection.objects.filter(workspace=here).values_list("name", flat=True))
        facts = "One a line, in CEL over target, before, after, args and result: id: target.id."
        return {
            "target": _text("Only for targets of the kind", "As order; empty: of every kind."),
            "connection": _choice("Over the connection", sorted(names), "Choose one"),
            "operation": _text("The operation that undoes it", "As refund."),
            "args": _text("Its arguments", facts, is_long=True),
            "reversibility": _choice(
                "How far it is undone", get_args(Reversibility), "As the operation promises",
                "It can only lower what the operation promises.",
            ),
            "words": _text("In words", "As Gives the money back."),
            "probe_connection": _choice(
                "Found out over", sorted(names), "Nobody is asked",
                "Whether a call of unknown outcome was made.",
            ),
            "probe_operation": _text("The operation that finds it out", "As find_charge."),
            "probe_args": _text("Arguments of that", "As key: args.key.", is_long=True),
        }  # fmt: skip

    def field_of(self, below: str) -> str | None:
        start = "probe_" if below.startswith("probe") else ""
        path = below.removeprefix("probe").removeprefix(".")
        return f"{start}args" if path.startswith("args") else None

    @staticmethod
    def words(said: Mapping[str, str]) -> str:
        kind = f"of {said['target']}: " if said["target"] else ""
        probe = "; whether it was done can be found out" if said["probe_operation"] else ""
        return f"{kind}{said['connection']}.{said['operation']}{probe}"


FORMS: Mapping[str, type[EntryForm]] = {one.name: one for one in (ToolForm, TwinForm)}


class EntryRow(NamedTuple):
    """One entry with its place in the document, in words."""

    at: int
    glob: str
    words: str


@dataclass(frozen=True)
class Catalogue:
    """The entries of a section as a page shows them; `form` is open for one of them, or is none."""

    kind: type[EntryForm]
    rows: Sequence[EntryRow]
    count: int
    """All of them, of which `rows` may be the beginning."""
    form: EntryForm | None

    @property
    def add(self) -> str:
        """The act that opens a form for a new one."""
        return f"{self.kind.name}_add"


def catalogues(source: str, entry: EntryForm | None, *, whole: bool) -> Iterator[Catalogue]:
    """Each section, the `whole` of it or as many rows as of the rules."""
    for kind in FORMS.values():
        own, form = told(source, kind), entry if isinstance(entry, kind) else None
        yield Catalogue(kind, own if whole else own[:ROWS_SHOWN_MAX], len(own), form)


def rows(source: str, kind: type[EntryForm]) -> list[RulePosition]:
    """The entries of a document in its order; none where it cannot be read."""
    try:
        return editing.rows(source, (kind.section,))
    except Invalid:
        return []


def told(source: str, kind: type[EntryForm]) -> list[EntryRow]:
    """Each entry with its place, and what is said of it in words."""
    return [
        EntryRow(at, row.glob, kind.words(kind.fields_of(row.entry)))
        for at, row in enumerate(rows(source, kind))
    ]


def initial_of(kind: type[EntryForm], row: RulePosition, at: int) -> dict[str, Any]:
    """What the fields of an entry begin with."""
    said: dict[str, str] = kind.fields_of(row.entry)
    chosen = {name: _as_offered(name, said[name]) for name in kind.choices}
    return said | chosen | {"glob": row.glob, "at": at, "was": stamp(row)}


def _as_offered(name: str, said: str) -> str:
    """A connection is called by its name as it is; other choices in any case."""
    return said if name.endswith("connection") else said.lower()


def put(source: str, form: EntryForm) -> editing.EditResult | None:
    """The document with the entry of a form; None, said in the form, where it cannot be put there.

    Raises Invalid where the document cannot be read.
    """
    said, known = form.cleaned_data, editing.rows(source, (form.section,))
    glob, at = said["glob"], said["at"]
    row = known[at] if at is not None and at < len(known) else None
    if at is not None and (row is None or stamp(row) != said["was"]):
        form.add_error(None, f"This {form.name} has changed in the document since you opened it.")
        return None
    if form.one_per_glob and any(one.glob == glob and one is not row for one in known):
        form.add_error("glob", f"This {form.name} is listed already.")
        return None
    old = row.entry if row else {}
    was = form.fields_of(old)
    kept = {name: was[name] for name in form.choices if _as_offered(name, was[name]) == said[name]}
    new = form.entry_of(old, said | kept)
    edited = (
        editing.relocated(source, row, new, glob, form.section)
        if row
        else editing.added(source, glob, new, form.section)
    )
    put_there = [
        one for one in rows(edited.source, type(form)) if (one.glob, one.entry) == (glob, new)
    ]
    form.place = put_there[-1].path
    return edited
