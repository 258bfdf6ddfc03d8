"""What the policy says for all rules, as a form: the fields out of a document, and back into it.

As with a rule (approvals/rules.py) nothing that is not changed changes its spelling. The fields of
the catalogue and of twins stand in their forms (approvals/views/catalogue_form.py).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django import forms

from amends.protocol.vocabulary import RISKS
from approvals import rules
from approvals.policy import Invalid, Mistake, editing
from approvals.policy.decisions import VERIFIES
from approvals.policy.named_lists import KINDS
from approvals.rules import as_claim, as_text, claim_of, field_at, members, normal, value_at
from workspaces.forms import WrittenField, offer_too, shown_in, under_headings, without_hint
from workspaces.models import Team, Workspace

TEXT_CHARACTERS_MAX = 400
LINES_CHARACTERS_MAX = 100_000
TEAMS_MAX = 200
LISTS_MAX = 30
"""So many lists have fields; a document with more keeps the others."""
LIST_PARTS = ("name", "kind", "words", "entries")
TEXT, CHOICE, CLAIM, LINES, WORDS = "text", "choice", "claim", "lines", "words"
YES_NO = (("yes", "Yes"), ("no", "No"))
VERIFY_WORDS = {
    "NONE": "Nobody",
    "AGENT": "The agent",
    "CONNECTOR": "The desk, over the connection",
    "PERSON": "A person",
}


class Setting(NamedTuple):
    """One value of the document: where it stands, what it means, and what counts without it."""

    path: str
    label: str
    kind: str = TEXT
    choices: Sequence[tuple[str, str]] = ()
    without: str = ""
    help: str = ""


GROUPS: Mapping[str, Mapping[str, Setting]] = {
    "Who is asked": {
        "unknown": Setting(
            "unknownTools", "A tool that nothing here lists", CHOICE,
            (("ASK", "Asks a person"), ("ALLOW", "Goes on by its class")), "Goes on by its class",
        ),
        "self_approval": Setting(
            "selfApproval", "Who asked may approve it, too", CLAIM, YES_NO, "No",
            "For workspaces of one person; with a fresh log-in, and on the record.",
        ),
        "signed_from": Setting(
            "signedFrom", "Each yes is signed by its person from", CHOICE, rules.RISK_CHOICES,
            "Nothing is signed", "By a security key or passkey that the person has on record here.",
        ),
        "expires_action": Setting(
            "expires.action", "People have for a call", without="1h", help="As 30m or 4h."
        ),
        "expires_plan": Setting("expires.plan", "People have for a plan", without="24h"),
        "probation": Setting(
            "probation", "A new member does not count for who brought them in", without="24h",
            help="From 0s to 30d.",
        ),
        "order": Setting(
            "order", "A second step that cannot be undone, or one after it", CHOICE,
            (("WARN", "Is told"), ("ASK", "Asks a person"), ("DENY", "Is denied")), "Is told",
        ),
    },
    "Working hours": {
        "hours_from": Setting("hours.from", "From", help="As 08:00; conditions say working_hours."),
        "hours_to": Setting("hours.to", "To", help="Before “from”: of the next day."),
        "hours_days": Setting(
            "hours.days", "Days", LINES, without="mon, tue, wed, thu, fri",
            help="Of mon, tue, wed, thu, fri, sat, sun.",
        ),
        "hours_zone": Setting("hours.zone", "Time zone", without="UTC", help="As Europe/Berlin."),
        "hours_closed": Setting(
            "hours.closed", "Days on which nobody is there", LINES, help="As 2026-12-25."
        ),
    },
    "Breaking the glass": {
        "glass": Setting(
            "breakGlass", "In place of those who cannot be reached decide", CHOICE,
            (("yes", "Two of a team, or two administrators"),), "Nobody",
        ),
        "glass_group": Setting("breakGlass.group", "Of which team", without="Administrators"),
        "glass_after": Setting(
            "breakGlass.after", "Once a question has waited", without="15m", help="As 15m or 0s."
        ),
        "glass_up_to": Setting(
            "breakGlass.upTo", "Up to which risk", CHOICE, rules.RISK_CHOICES, "High"
        ),
    },
    "Undoing": {
        "auto": Setting(
            "autoCompensation", "Undo without a person what may be", CLAIM, YES_NO, "No"
        ),
        "auto_tools": Setting(
            "autoCompensation.tools", "Of these tools", LINES, without="*", help="As crm.*."
        ),
        "auto_publish": Setting(
            "autoCompensation.publish", "Publish the corrections of it", CLAIM, YES_NO, "No"
        ),
        "on_failure": Setting(
            "unwind.onCompensationFailure", "Where a step of a plan fails", CHOICE,
            (("ALERT_AND_CONTINUE", "Tell, and go on with the others"), ("HALT", "Stop")),
            "Tell, and go on with the others",
        ),
        "timeout": Setting(
            "unwind.timeout", "Wait for an outside call", without="as the operation says",
            help="From 1s to 60s.",
        ),
        "verify": Setting(
            "verify", "Who reads back afterwards", CHOICE,
            tuple((one, VERIFY_WORDS[one]) for one in VERIFIES), "Nobody",
        ),
    },
    "Cases": {
        "stuck_after": Setting("stuckAfter", "A run may be silent for", without="15m"),
        **{
            f"due_{risk}": Setting(f"due.{risk}", f"A case of {risk} risk is due after",
                                   without=default)
            for risk, default in zip(RISKS, ("7d", "3d", "24h", "4h"), strict=True)
        },
    },
    "What is kept": {
        "capture_intent": Setting(
            "audit.captureIntent", "Keep why an agent makes each call", CLAIM, YES_NO, "Yes",
            "In its own words. What a run was asked for is kept all the same.",
        ),
        "capture_snapshot": Setting(
            "audit.captureSnapshot", "Keep how targets were", CLAIM, YES_NO, "Yes",
            "Without it nothing is put back as it was before.",
        ),
        "retention": Setting("audit.retention", "Payloads stay for", without="90d"),
        "mask": Setting("audit.mask", "Masked paths", LINES, help="As args.card.*."),
        "last4": Setting(
            "audit.showLast4", "Masks of cards and IBANs show the last four", CLAIM, YES_NO, "No",
            "Into the ledger, and for good.",
        ),
    },
}  # fmt: skip
SETTINGS: Mapping[str, Setting] = {
    name: one for group in GROUPS.values() for name, one in group.items()
}
PATHS = {name: one.path for name, one in SETTINGS.items()}
GLASS, AUTO, LISTS = "breakGlass", "autoCompensation", "lists"

Document = Mapping[str, Any]


def fields_of(document: Document) -> dict[str, str]:
    """What the fields say of a document (without its wrapper), each as a text; of its lists
    `list_name_N`, `list_kind_N`, `list_words_N` and `list_entries_N`.
    """
    found = {name: _said(one, value_at(document, one.path)) for name, one in SETTINGS.items()}
    auto = document.get(AUTO)
    found["glass"] = "yes" if isinstance(document.get(GLASS), dict) else ""
    enabled = auto.get("enabled", True) if isinstance(auto, dict) else auto
    found["auto"] = as_claim(enabled)
    for n, (name, one) in enumerate(lists_of(document).items()):
        inside = one if isinstance(one, dict) else {"entries": one}
        found[f"list_name_{n}"] = name
        found[f"list_kind_{n}"] = as_text(inside.get("kind")).lower()
        found[f"list_words_{n}"] = as_text(inside.get("words"))
        entries = inside.get("entries")
        are_texts = isinstance(entries, list) and all(isinstance(one, str) for one in entries)
        found[f"list_entries_{n}"] = "\n".join(entries) if are_texts and entries else ""
    return found


def lists_of(document: Document) -> dict[str, Any]:
    """The lists that have fields."""
    return dict(list(members(document.get(LISTS)).items())[:LISTS_MAX])


def _said(one: Setting, value: Any) -> str:
    if one.kind == CLAIM:
        return as_claim(value)
    text = as_text(value)
    return text.upper() if one.kind == CHOICE else text


def changes(document: Document, said: Mapping[str, Any]) -> dict[str, Any]:
    """What of the document the fields change: name → what stands there then; None: nothing."""
    was = fields_of(document)
    found: dict[str, Any] = {}
    now, changed = rules.typed(was, said, SETTINGS)
    for name, one in SETTINGS.items():
        top, _, member = one.path.partition(".")
        if name not in changed or (top in {AUTO, GLASS} and not member):
            continue
        if not member:
            found[top] = _typed(name, now[name])
            continue
        inside = found.setdefault(top, members(document.get(top)))
        rules.put(inside, member, _typed(name, now[name]))
    if {"glass", *(name for name in SETTINGS if name.startswith("glass_"))} & changed:
        found[GLASS] = (found.get(GLASS) or {}) if now["glass"] else None
        if now["glass"] and not found[GLASS] and isinstance(document.get(GLASS), dict):
            found[GLASS] = {}
    if {"auto", "auto_tools", "auto_publish"} & changed:
        found[AUTO] = _auto(now, found.get(AUTO, document.get(AUTO)))
    found = {
        name: None if value in ({}, "", []) and name != GLASS else value
        for name, value in found.items()
    }
    return found | _lists(document, was, said)


def _typed(name: str, text: str) -> Any:
    one = SETTINGS[name]
    if one.kind == CLAIM:
        return claim_of(text)
    if one.kind == LINES:
        return [part.strip() for part in text.replace("\n", ",").split(",") if part.strip()]
    return text or None


def _auto(now: Mapping[str, str], given: Any) -> Any:
    more = members(given)
    more.pop("enabled", None)
    if not now["auto"]:
        return more or None
    is_on = now["auto"] == "yes"
    return {"enabled": is_on, **more} if more else is_on


def _lists(document: Document, was: Mapping[str, str], said: Mapping[str, Any]) -> dict[str, Any]:
    """The lists, where a field of one changes: those without fields stay, behind the others."""
    old = list(members(document.get(LISTS)).items())
    found: dict[str, Any] = {}
    is_changed = False
    for n in range(LISTS_MAX):
        now = {part: normal(said.get(f"list_{part}_{n}")) for part in LIST_PARTS}
        before = {part: normal(was.get(f"list_{part}_{n}")) for part in LIST_PARTS}
        if now == before:
            found |= dict(old[n : n + 1])
            continue
        is_changed = True
        if now["name"]:
            found[now["name"]] = _list(old[n][1] if n < len(old) else {}, before, now)
    return {LISTS: {**found, **dict(old[LISTS_MAX:])} or None} if is_changed else {}


def _list(old: Any, before: Mapping[str, str], now: Mapping[str, str]) -> Any:
    inside = dict(old) if isinstance(old, dict) else {"entries": old}
    for part in LIST_PARTS[1:]:
        if now[part] != before[part]:
            lines = [one.strip() for one in now[part].split("\n") if one.strip()]
            rules.put(inside, part, lines if part == "entries" else now[part])
    return inside["entries"] if isinstance(old, list) and list(inside) == ["entries"] else inside


def field_of(path: str, message: str, said: Mapping[str, Any], known: Sequence[str]) -> str | None:
    """The field at which a mistake of the document is told; None where it has none."""
    top, _, below = path.partition(".")
    if top == LISTS:
        name, _, part = below.partition(".")
        part = part.partition("[")[0] or "name"
        places = (n for n in range(LISTS_MAX) if said.get(f"list_name_{n}") == name.strip('"'))
        at = next(places, None)
        return None if at is None else f"list_{part if part in LIST_PARTS else 'name'}_{at}"
    if top not in {one.partition(".")[0] for one in PATHS.values()}:
        return None
    return field_at(path, message, known, PATHS)


def told(source: str) -> list[tuple[str, str]]:
    """What a document says for all rules, as label and words, in the order of the fields; nothing
    where it cannot be read.
    """
    try:
        document = editing.document_of(source)
    except Invalid:
        return []
    said = fields_of(document)
    found = []
    for name, one in SETTINGS.items():
        if said[name]:
            words = dict(one.choices).get(said[name], said[name])
            found.append((one.label, words))
    for n, name in enumerate(lists_of(document)):
        kind = said[f"list_kind_{n}"] or KINDS[0]
        words = said[f"list_words_{n}"]
        found.append((f"List {name}", f"of {kind}{': ' + words if words else ''}"))
    return found


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

    def _field(self, name: str, one: Setting) -> forms.Field:
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
        of_lists = [f"list_{part}_{n}" for n in range(self.lists) for part in LIST_PARTS]
        return under_headings(self, {**GROUPS, "Named lists": of_lists})

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
            name = field_of(path, one.message, said, list(self.fields))
            if name and name in self.fields and not self.has_error(name, one.message):
                self.add_error(name, one.message)


def put(source: str, form: SettingsForm) -> editing.EditResult:
    """The document as the form says it. Raises Invalid where it cannot be read."""
    changed = changes(editing.document_of(source), form.cleaned_data)
    return editing.with_settings(source, changed)
