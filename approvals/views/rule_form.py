"""One rule of the policy as a form: its fields out of the document, and back into it
(approvals/rules.py), with what each means in words and a mistake at its own field.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from django import forms

from approvals import rules
from approvals.policy import Mistake, document, editing
from approvals.policy.condition_words import in_words
from approvals.policy.decisions import COMPENSATIONS, VERDICTS, VERIFIES
from approvals.policy.editing import REVIEW, RULES, RulePosition
from approvals.policy.expressions import EXPRESSION_CHARACTERS_MAX, MEMBER
from approvals.policy.loading import AMOUNT_MAX, USES_MAX
from approvals.rules import ANYBODY, PLACES_MAX, PLACES_MIN, TEAM
from approvals.views.settings_form import VERIFY_WORDS
from ledger.models import Action
from workspaces.forms import (
    OneLine,
    WrittenField,
    choice_of,
    offer_too,
    shown_in,
    under_headings,
    without_hint,
)
from workspaces.models import Agent, Team, Workspace

WORDS_CHARACTERS_MAX = 400
CHOICES_MAX = 200
OFFERS_MAX = 10
AGENT = re.compile(r'agent == "([^"\\]+)"(?: && (.+))?', re.DOTALL)
LOOSE = re.compile(r"\|\||\?")
"""What binds weaker than `&&`."""
COMPENSATION_WORDS = {
    "NONE": "Nothing undoes it",
    "SNAPSHOT": "Its state is put back",
    "ARCHIVE": "A draft is put away",
    "DELETE": "What it made is deleted",
    "REVERSE": "The opposite is done",
    "REFUND": "The money is sent back",
    "CANCEL": "It is cancelled",
    "CORRECTION": "Nothing can: the affected person is told",
}
MORE = {
    "Asking further": (
        "escalate_after", "escalate_group", "self_approval", "affected", "affected_words",
    ),
    "Granting the next ones ahead": (
        "bounded_uses", "bounded_for", "bounded_amount", "bounded_each", "bounded_sum",
        "bounded_same", "bounded_listed",
    ),
    "Undoing it and reading it back": ("compensation", "verify"),
}  # fmt: skip
"""What few rules say, folded away where this one does not."""


class GlobField(OneLine):
    """The name of a tool as agents say it; * and ? stand for letters."""

    def __init__(self, *, help_text: str = "* and ? stand for letters.") -> None:
        super().__init__(
            label="Tool",
            max_length=document.GLOB_CHARACTERS_MAX,
            help_text=help_text,
            widget=forms.TextInput(attrs={"class": "mono", "autocomplete": "off"}),
        )

    def validate(self, value: Any) -> None:
        super().validate(value)
        if value and (why := document.mistake(value)):
            raise forms.ValidationError(f"Not a tool: {why}.")


class RuleForm(forms.Form):
    """Which calls, what is said of them, who answers, and why."""

    glob = GlobField(
        help_text="As agents name it; * and ? stand for letters. The most specific decides."
    )
    section = forms.ChoiceField(
        label="What the rule is for",
        choices=rules.SECTION_WORDS,
        help_text="A look afterwards has a condition and a reason, and nothing else.",
    )
    agent = forms.ChoiceField(label="Agent", required=False)
    offers = forms.MultipleChoiceField(
        label="Only where", required=False, widget=forms.CheckboxSelectMultiple
    )
    when = WrittenField(
        label="Condition",
        characters_max=EXPRESSION_CHARACTERS_MAX,
        required=False,
        help_text="In CEL, as args.amount > 100; empty: every call of the tool.",
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false", "class": "mono"}),
    )
    approval = forms.ChoiceField(
        label="Decision",
        required=False,
        choices=[("", "By its risk: people from high up"),
                 *((one, rules.VERDICT_WORDS[one][1]) for one in VERDICTS)],
    )  # fmt: skip
    risk = forms.ChoiceField(
        label="Risk at least",
        required=False,
        choices=[("", "As its class says"), *rules.RISK_CHOICES],
    )
    expires = OneLine(
        label="Within", max_length=20, required=False, help_text="As 30m or 4h; else an hour."
    )
    words = WrittenField(
        label="Reason",
        characters_max=WORDS_CHARACTERS_MAX,
        required=False,
        help_text="The rule in a sentence, for the people who are asked.",
    )
    escalate_after = OneLine(
        label="Ask one more team after",
        max_length=20,
        required=False,
        help_text="As 30m: where nobody has decided by then.",
    )
    escalate_group = forms.ChoiceField(label="Which team then", required=False)
    self_approval = forms.ChoiceField(
        label="Who asked may approve it, too",
        required=False,
        choices=[("", "As for all rules"), ("yes", "Yes, with a fresh log-in"), ("no", "No")],
    )
    affected = forms.ChoiceField(
        label="The affected person",
        required=False,
        choices=[
            ("", "Is not asked"),
            ("ask", "Is asked first, and people see the answer"),
            ("must", "Is asked first, and must agree"),
        ],
    )
    affected_words = WrittenField(
        label="What they are asked",
        characters_max=WORDS_CHARACTERS_MAX,
        required=False,
        help_text="Empty: the desk’s own question.",
    )
    bounded_uses = forms.IntegerField(
        label="So many calls", required=False, min_value=1, max_value=USES_MAX,
        help_text="Who approves one may approve up to so many like it ahead. Empty: none.",
    )  # fmt: skip
    bounded_for = OneLine(
        label="For how long", max_length=20, required=False, help_text="As 1d; 30 days at most."
    )
    bounded_amount = OneLine(
        label="What is counted",
        max_length=EXPRESSION_CHARACTERS_MAX,
        required=False,
        help_text="In CEL, as args.amount; empty: calls alone are counted.",
        widget=forms.TextInput(attrs={"class": "mono", "spellcheck": "false"}),
    )
    bounded_each = forms.IntegerField(
        label="At most for each", required=False, min_value=1, max_value=AMOUNT_MAX
    )
    bounded_sum = forms.IntegerField(
        label="At most in all", required=False, min_value=1, max_value=AMOUNT_MAX
    )
    bounded_same = OneLine(
        label="What stays as on the card",
        max_length=EXPRESSION_CHARACTERS_MAX,
        required=False,
        help_text="Arguments with commas between them, as args.currency, args.iban.",
        widget=forms.TextInput(attrs={"class": "mono", "spellcheck": "false"}),
    )
    bounded_listed = OneLine(
        label="Or for whatever stands on a list",
        max_length=200,
        required=False,
        help_text="As args.iban in lists.payees.",
        widget=forms.TextInput(attrs={"class": "mono", "spellcheck": "false"}),
    )
    compensation = forms.ChoiceField(
        label="How it is undone",
        required=False,
        choices=[("", "As the twin of the tool says"),
                 *((one, COMPENSATION_WORDS[one]) for one in COMPENSATIONS)],
    )  # fmt: skip
    verify = forms.ChoiceField(
        label="Who reads back afterwards",
        required=False,
        choices=[("", "As for all rules"), *((one, VERIFY_WORDS[one]) for one in VERIFIES)],
    )
    at = forms.IntegerField(required=False, min_value=0, widget=forms.HiddenInput)
    was = forms.CharField(required=False, widget=forms.HiddenInput, strip=False)

    def __init__(
        self,
        here: Workspace,
        data: Mapping[str, Any] | None = None,
        *,
        initial: Mapping[str, Any] | None = None,
        offers: Sequence[str] = (),
    ) -> None:
        super().__init__(data, initial=dict(initial or {}), prefix="rule")
        self.places = min(PLACES_MAX, self._places())
        agents = Agent.objects.filter(workspace=here).order_by("name")
        names = list(agents.values_list("name", flat=True)[:CHOICES_MAX])
        choice_of(self, "agent").choices = [
            ("", "Any agent"), *((one, one) for one in _with(names, shown_in(self, "agent"))),
        ]  # fmt: skip
        choice_of(self, "offers").choices = [(one, in_words(one)) for one in offers]
        if not offers:
            del self.fields["offers"]
        self._offer_teams(here)
        for name in rules.CHOICES:
            offer_too(choice_of(self, name), shown_in(self, name))
        for name, field in self.fields.items():
            if isinstance(field, forms.ChoiceField) or name.startswith("count_"):
                without_hint(field)

    def _places(self) -> int:
        """So many requirements are shown: those that there are, and one to fill in."""
        typed = [n for n in range(PLACES_MAX) if self.add_prefix(f"who_{n}") in self.data]
        if typed:
            return max(PLACES_MIN, typed[-1] + 1)
        return max(PLACES_MIN, sum(name.startswith("who_") for name in self.initial) + 1)

    def _offer_teams(self, here: Workspace) -> None:
        teams = Team.objects.filter(workspace=here).order_by("name")
        names = list(teams.values_list("name", flat=True)[:CHOICES_MAX])
        choice_of(self, "escalate_group").choices = [
            ("", "None"), *((one, one) for one in _with(names, shown_in(self, "escalate_group"))),
        ]  # fmt: skip
        for n in range(self.places):
            chosen = shown_in(self, f"who_{n}").removeprefix(TEAM).removeprefix(ANYBODY)
            self.fields[f"who_{n}"] = forms.ChoiceField(
                label="Who approves" if not n else "And",
                required=False,
                choices=[("", "One person who may approve" if not n else "Nobody else"),
                         (ANYBODY, "People who may approve"),
                         *((f"{TEAM}{one}", f"From {one}") for one in _with(names, chosen))],
            )  # fmt: skip
            self.fields[f"count_{n}"] = forms.IntegerField(
                label="How many", required=False, min_value=1, max_value=10
            )

    @property
    def people(self) -> list[tuple[Any, Any]]:
        """The fields of each requirement, beside each other."""
        return [(self[f"who_{n}"], self[f"count_{n}"]) for n in range(self.places)]

    @property
    def more(self) -> list[tuple[str, list[Any], bool]]:
        """What few rules say: its heading, its fields, and whether something stands in one."""
        return under_headings(self, MORE)

    def typed(self) -> dict[str, Any]:
        """What was typed so far, to begin a form with."""
        start = f"{self.prefix}-"
        found = {
            name.removeprefix(start): value
            for name, value in self.data.items()
            if name.startswith(start)
        }
        if "offers" in self.fields:
            found["offers"] = self["offers"].data
        return found

    def clean(self) -> dict[str, Any]:
        said = self.cleaned_data
        for n in range(1, self.places):
            if (said.get(f"count_{n}") or 1) > 1 and not said.get(f"who_{n}"):
                self.add_error(f"who_{n}", "Say of whom there are so many.")
        if said.get("affected_words") and not said.get("affected"):
            self.add_error("affected", "Nobody is asked this: say whether they are.")
        if said.get("section") == REVIEW:
            for name in (name for names in MORE.values() for name in names):
                if said.get(name):
                    self.add_error(name, "A look afterwards does not have this.")
        return said

    def tell(self, problems: Sequence[Mistake], at: str) -> list[Mistake]:
        """Each mistake of the rule at `at` to its own field; what has none is given back."""
        left = []
        for one in problems:
            below = one.path.removeprefix(at).removeprefix(".")
            name = rules.field_at(below, one.message, list(self.fields))
            if name:
                self.add_error(name, one.message)
            else:
                left.append(one)
        return left

    def entry(self, old: Mapping[str, Any], section: str = "") -> dict[str, Any]:
        """The rule as it is to stand in the document, where `old` stood in its section."""
        said = dict(self.cleaned_data)
        said["when"] = self._condition(rules.text_of(old.get("when")))
        if said["section"] == REVIEW:
            kept = {"when", "words", *(old if section == REVIEW else ())}
            old = {name: value for name, value in old.items() if name in kept}
            alone = rules.fields_of(old) | {name: said[name] for name in ("when", "words")}
            return rules.entry_of(old, alone)
        was = rules.text_of(old.get("approval")).upper()
        if said["approval"] in {"AUTO", "DENY"} and was != said["approval"]:
            old = {name: value for name, value in old.items() if name != "requires"}
            people = [name for pair in self.people for name in (pair[0].name, pair[1].name)]
            said = {name: one for name, one in said.items() if name not in people}
        return rules.entry_of(old, said)

    def _condition(self, old: str) -> str:
        agent, rest = split_agent(old)
        said = self.cleaned_data
        offered = said.get("offers", [])
        if old and (said["agent"], said["when"]) == (agent, rest.strip()) and not offered:
            return old
        parts = [one for one in (said["when"], *offered) if one]
        if len(parts) > 1 or said["agent"]:
            parts = [f"({one})" if LOOSE.search(one) else one for one in parts]
        own = [f'agent == "{said["agent"]}"'] if said["agent"] else []
        return " && ".join([*own, *parts])


def _with(names: Sequence[str], one: str) -> list[str]:
    return [*names, *([one] if one and one not in names else [])]


def split_agent(when: str) -> tuple[str, str]:
    """The agent that a condition begins with, and the rest; nothing and all where that would read
    as something else.
    """
    found = AGENT.fullmatch(when.strip())
    if found is None:
        return "", when
    rest = found[2] or ""
    inner = rest[1:-1] if rest.startswith("(") and rest.endswith(")") else ""
    if LOOSE.search(rest) and (not inner or "(" in inner or ")" in inner):
        return "", when
    return found[1], inner if LOOSE.search(rest) else rest


def initial_of(row: RulePosition, number: int) -> dict[str, Any]:
    """What the fields of a rule begin with."""
    entry = row.entry
    agent, when = split_agent(rules.text_of(entry.get("when")))
    return rules.fields_of(entry) | {
        "glob": row.glob, "section": row.section, "agent": agent, "when": when,
        "at": number, "was": stamp(row),
    }  # fmt: skip


def stamp(row: RulePosition) -> str:
    """What a rule was when its form was opened: whether it is still that is asked in the end."""
    return json.dumps([row.section, row.glob, row.entry], sort_keys=True)


def beginning(glob: str) -> dict[str, Any]:
    """What the fields of a new rule begin with."""
    return {"glob": glob, "section": RULES, "approval": "MANUAL"}


def offers_of(call: Action, *, sees: bool) -> list[str]:
    """Conditions that a call suggests; with values of it only for who `sees` these."""
    found = ["!known(target)"] if call.targets else []
    args = call.args if isinstance(call.args, dict) else {}
    for name, value in args.items():
        if not MEMBER.fullmatch(name) or isinstance(value, bool) or value is None:
            continue
        if isinstance(value, int | float):
            found += [f"args.{name} > {value}"] * sees
        elif isinstance(value, str):
            found += [f"!mentioned(args.{name})", f"!known(args.{name})"]
    return found[:OFFERS_MAX]


def row_at(rows: Sequence[RulePosition], form: RuleForm) -> RulePosition | None:
    """The rule that a form was opened for, if it still stands there as it was."""
    at = form.cleaned_data["at"]
    if at is None or not at < len(rows):
        return None
    return rows[at] if stamp(rows[at]) == form.cleaned_data["was"] else None


def put(source: str, form: RuleForm) -> tuple[editing.EditResult, tuple[str, str, Any]] | None:
    """The document with the rule of a form in it, and the rule: its section, glob and entry. None
    where the rule it was opened for is no longer there. Raises Invalid where the document cannot
    be read.
    """
    said = form.cleaned_data
    section, glob = said["section"], said["glob"]
    if said["at"] is None:
        entry = form.entry({})
        return editing.added(source, glob, entry, section), (section, glob, entry)
    row = row_at(editing.rows(source), form)
    if row is None:
        return None
    entry = form.entry(row.entry, row.section)
    edited = editing.relocated(source, row, entry, glob, section)
    return edited, (section, glob, entry)
