"""One rule of the policy as a form: its fields out of the document, and back into it.

What the form has no field for stays in the rule as it stands.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from django import forms

from amends.protocol.vocabulary import RISKS
from approvals import rule_table
from approvals.policy import document, editing
from approvals.policy.condition_words import in_words
from approvals.policy.decisions import VERDICTS
from approvals.policy.editing import REVIEW, RULES, Row
from ledger.models import Action
from workspaces.forms import OneLine, WrittenField, choice_of, without_hint
from workspaces.models import Agent, Team, Workspace

CONDITION_CHARACTERS_MAX = 2_000
WORDS_CHARACTERS_MAX = 400
PLACES = 2
"""So many requirements have fields; a rule with more keeps the others."""
ANYBODY, TEAM = "*", "team:"
CHOICES_MAX = 200
OFFERS_MAX = 10
AGENT = re.compile(r'agent == "([^"\\]+)"(?: && (.+))?', re.DOTALL)
MEMBER = re.compile(r"[A-Za-z_]\w*")
LOOSE = re.compile(r"\|\||\?")
"""What binds weaker than `&&`."""


class RuleForm(forms.Form):
    """Which calls, what is said of them, who answers, and why."""

    glob = OneLine(
        label="Tool",
        max_length=document.GLOB_CHARACTERS_MAX,
        help_text="As agents name it; * and ? stand for letters. The most specific decides.",
        widget=forms.TextInput(attrs={"class": "mono", "autocomplete": "off"}),
    )
    section = forms.ChoiceField(label="What the rule is for", choices=rule_table.SECTION_WORDS)
    agent = forms.ChoiceField(label="Agent", required=False)
    offers = forms.MultipleChoiceField(
        label="Only where", required=False, widget=forms.CheckboxSelectMultiple
    )
    when = WrittenField(
        label="Condition",
        characters_max=CONDITION_CHARACTERS_MAX,
        required=False,
        help_text="In CEL, as args.amount > 100; empty: every call of the tool.",
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false", "class": "mono"}),
    )
    approval = forms.ChoiceField(
        label="Decision",
        required=False,
        choices=[("", "By its risk: people from high up"),
                 *((one, rule_table.VERDICT_WORDS[one][1]) for one in VERDICTS)],
    )  # fmt: skip
    risk = forms.ChoiceField(
        label="Risk at least",
        required=False,
        choices=[("", "As its class says"), *((one.upper(), one.title()) for one in RISKS)],
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
        known = {
            name: str(self.data.get(self.add_prefix(name), self.initial.get(name, "")) or "")
            for name in ("agent", *(f"who_{n}" for n in range(PLACES)))
        }
        agents = Agent.objects.filter(workspace=here).order_by("name")
        names = list(agents.values_list("name", flat=True)[:CHOICES_MAX])
        choice_of(self, "agent").choices = [
            ("", "Any agent"), *((one, one) for one in _with(names, known["agent"])),
        ]  # fmt: skip
        choice_of(self, "offers").choices = [(one, in_words(one)) for one in offers]
        if not offers:
            del self.fields["offers"]
        teams = Team.objects.filter(workspace=here).order_by("name")
        names = list(teams.values_list("name", flat=True)[:CHOICES_MAX])
        for n in range(PLACES):
            own = _with(names, known[f"who_{n}"].removeprefix(TEAM).removeprefix(ANYBODY))
            self.fields[f"who_{n}"] = forms.ChoiceField(
                label="Who approves" if not n else "And",
                required=False,
                choices=[("", "One person who may approve" if not n else "Nobody else"),
                         (ANYBODY, "People who may approve"),
                         *((f"{TEAM}{one}", f"From {one}") for one in own)],
            )  # fmt: skip
            self.fields[f"count_{n}"] = forms.IntegerField(
                label="How many", required=False, min_value=1, max_value=10
            )
        for name, field in self.fields.items():
            if isinstance(field, forms.ChoiceField) or name.startswith("count_"):
                without_hint(field)

    @property
    def people(self) -> list[tuple[Any, Any]]:
        """The fields of each requirement, beside each other."""
        return [(self[f"who_{n}"], self[f"count_{n}"]) for n in range(PLACES)]

    def clean_glob(self) -> str:
        glob: str = self.cleaned_data["glob"]
        if why := document.mistake(glob):
            raise forms.ValidationError(f"Not a tool: {why}.")
        return glob

    def entry(self, old: Mapping[str, Any]) -> dict[str, Any]:
        """The rule as it is to stand in the document, where `old` stood."""
        said = self.cleaned_data
        new = dict(old)
        _put(new, "when", self._condition(rule_table.text_of(old.get("when"))))
        _put(new, "words", said["words"])
        if said["section"] == REVIEW:
            return {name: new[name] for name in ("when", "words") if name in new}
        for name in ("risk", "approval", "expires"):
            if rule_table.text_of(new.get(name)).upper() != said[name].upper():
                _put(new, name, said[name])
        asked = old.get("requires")
        beyond = asked[PLACES:] if isinstance(asked, list) else []
        needs = [] if said["approval"] in {"AUTO", "DENY"} else [*self._needs(), *beyond]
        if _needs_of(old) + beyond != needs:
            _put(new, "requires", needs)
        return new

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

    def _needs(self) -> list[dict[str, Any]]:
        found = []
        for n in range(PLACES):
            who, count = self.cleaned_data[f"who_{n}"], self.cleaned_data[f"count_{n}"]
            if not who and (n or not count or count == 1):
                continue
            need = {"group": who.removeprefix(TEAM)} if who.startswith(TEAM) else {}
            found.append({**need, **({"count": count} if count and count > 1 else {})})
        return found


def _with(names: Sequence[str], one: str) -> list[str]:
    return [*names, *([one] if one and one not in names else [])]


def _put(entry: dict[str, Any], name: str, value: Any) -> None:
    if value:
        entry[name] = value
    else:
        entry.pop(name, None)


def _needs_of(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    asked = entry.get("requires")
    found = []
    for said in (asked if isinstance(asked, list) else [])[:PLACES]:
        one = said if isinstance(said, dict) else {}
        count = one.get("count")
        found.append({
            **({"group": one["group"]} if one.get("group") else {}),
            **({"count": count} if isinstance(count, int) and count > 1 else {}),
        })  # fmt: skip
    return found


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


def initial_of(row: Row, number: int) -> dict[str, Any]:
    """What the fields of a rule begin with."""
    entry = row.entry
    agent, when = split_agent(rule_table.text_of(entry.get("when")))
    initial: dict[str, Any] = {
        "glob": row.glob, "section": row.section, "agent": agent, "when": when,
        "approval": rule_table.text_of(entry.get("approval")).upper(),
        "risk": rule_table.text_of(entry.get("risk")).upper(),
        "expires": rule_table.text_of(entry.get("expires")),
        "words": rule_table.text_of(entry.get("words")),
        "at": number, "was": stamp(row),
    }  # fmt: skip
    for n, need in enumerate(_needs_of(entry)):
        initial[f"who_{n}"] = f"{TEAM}{need['group']}" if need.get("group") else ANYBODY
        initial[f"count_{n}"] = need.get("count", 1)
    return initial


def stamp(row: Row) -> str:
    """What a rule was when its form was opened: whether it is still that is asked in the end."""
    return json.dumps([row.section, row.glob, row.entry], sort_keys=True)


def beginning(glob: str, agent: str = "") -> dict[str, Any]:
    """What the fields of a new rule begin with."""
    return {"glob": glob, "agent": agent, "section": RULES, "approval": "MANUAL"}


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


def row_at(rows: Sequence[Row], form: RuleForm) -> Row | None:
    """The rule that a form was opened for, if it still stands there as it was."""
    at = form.cleaned_data["at"]
    if at is None or not at < len(rows):
        return None
    return rows[at] if stamp(rows[at]) == form.cleaned_data["was"] else None


def put(source: str, form: RuleForm) -> editing.Edited | None:
    """The document with the rule of a form in it; None where the rule it was opened for is no
    longer there. Raises Invalid where the document cannot be read.
    """
    said = form.cleaned_data
    if said["at"] is None:
        return editing.added(source, said["glob"], form.entry({}), said["section"])
    row = row_at(editing.rows(source), form)
    if row is None:
        return None
    return editing.relocated(source, row, form.entry(row.entry), said["glob"], said["section"])
