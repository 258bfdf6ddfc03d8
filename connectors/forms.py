"""Forms of the connections' and channels' pages; what a connector asks is in schema_forms."""

import re
from typing import Any

from django import forms

from connectors import links, registry
from connectors.channels import KINDS
from connectors.connections import CONCURRENCY_MAX
from connectors.contract import Connector
from connectors.models import ChannelKind, Connection, Tier
from connectors.schema_forms import SchemaForm, node_of
from workspaces.forms import ShortName, choice_of, without_hint

CREDENTIAL_CHARACTERS_MAX = 8_000
SUBJECTS_MAX = 50
SUBJECT = re.compile(r"[a-z_.*]{1,80}")
CARRIED = {
    "approval.*": "approvals: asked, reminded, decided",
    "compensation.*": "compensations that failed",
    "case.*": "critical cases",
    "policy.*": "rules that nobody can meet any more",
    "desk.*": "the desk itself: what has stopped, and what goes again",
    "ledger.went_back": "a ledger that lacks what it had signed",
    "correction.*": "corrections for the affected person (signed webhook)",
    "ledger.head": "signed heads, for a witness (signed webhook)",
    "ledger.entries": "every entry of the log, for a SIEM (signed webhook)",
}
"""What a channel can be asked to carry, by its subjects, in words."""


class NewConnectionForm(forms.Form):
    name = ShortName(
        label="Name",
        max_length=80,
        help_text="The policy calls it so where it says what undoes a tool, such as payments.",
    )


class ControlsForm(forms.Form):
    """What is not the connector's: how many calls, and which revision was shown."""

    concurrency = forms.IntegerField(
        label="Calls at once",
        min_value=1,
        max_value=CONCURRENCY_MAX,
        required=False,
        help_text="A slow system holds no more workers than that.",
    )
    link = forms.CharField(
        label="Link for people",
        required=False,
        max_length=links.LINK_CHARACTERS_MAX,
        help_text="Where a record stands in the system’s own pages, such as"
        " https://pay.example/charges/{id}. {id} is the target’s id, {name} what follows the last /"
        " of it, {type} its type, {key} the key of the call. It stands where somebody has to look.",
    )
    revision = forms.IntegerField(widget=forms.HiddenInput())

    def clean_link(self) -> str:
        pattern = str(self.cleaned_data["link"]).strip()
        if pattern and (why := links.mistake(pattern)):
            raise forms.ValidationError(why)
        return pattern


def secret_field(label: str, characters_max: int, help_text: str) -> forms.CharField:
    """A field that is typed unseen and never comes back filled in."""
    return forms.CharField(
        label=label,
        required=False,
        max_length=characters_max,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text=help_text,
    )


class CredentialForm(forms.Form):
    """One field for each part of the connector's credential; what is kept is never shown again."""

    SHOWN = "at-revision"  # no connector's field is called so

    def __init__(self, *args: Any, connector: Connector, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields[self.SHOWN] = forms.IntegerField(widget=forms.HiddenInput)
        for name, part in node_of(connector.credential_schema).parts.items():
            self.fields[name] = secret_field(part.label, CREDENTIAL_CHARACTERS_MAX, part.meaning)

    def value(self) -> dict[str, str]:
        said = self.cleaned_data.items()
        return {name: text for name, text in said if text and name != self.SHOWN}

    def revision(self) -> int:
        """The one that the person was shown, whose server the credential is for."""
        return int(self.cleaned_data[self.SHOWN])


class TryForm(forms.Form):
    """Observe one target: nothing is written."""

    operation = forms.ChoiceField(label="Operation")
    target_type = forms.CharField(
        label="Type of target", max_length=120, help_text="As agents name it, such as order"
    )
    target_id = forms.CharField(
        label="Id of target", max_length=400, help_text="As agents name it, such as 4711"
    )

    def __init__(self, *args: Any, operations: list[str], **options: Any) -> None:
        super().__init__(*args, **options)
        choice_of(self, "operation").choices = [(name, name) for name in operations]


class RehearseForm(TryForm):
    """Try one twin in the sandbox, as it would run in earnest; its arguments are another form."""

    operation = forms.ChoiceField(widget=forms.HiddenInput())


class ChannelForm(forms.Form):
    """A channel. What a kind needs is told beside the fields; addresses of webhooks are secret.

    `.of-kinds` of the style sheet hides from each kind the fields that it does not ask for.
    """

    name = ShortName(
        label="Name",
        max_length=80,
        help_text="Letters, digits, - and _, such as finance-mail.",
    )
    kind = forms.ChoiceField(label="Kind", choices=ChannelKind.choices)
    to = forms.CharField(
        label="Mail addresses",
        required=False,
        max_length=8_000,
        help_text="For mail; separated by commas or lines.",
    )
    url = secret_field(
        "Address", 2_000, "For webhooks. It is kept as a secret and not shown again."
    )
    secret = secret_field(
        "Signing secret",
        200,
        "For signed webhooks, whsec_…; left empty, one is made and shown once.",
    )
    carries = forms.MultipleChoiceField(
        label="What it carries",
        required=False,
        choices=[(subject, f"{words[0].upper()}{words[1:]}") for subject, words in CARRIED.items()],
        widget=forms.CheckboxSelectMultiple,
        help_text="Nothing chosen: whatever happens, but neither heads nor entries of the log.",
    )
    subjects = forms.CharField(
        label="Single subjects",
        required=False,
        max_length=2_000,
        help_text="Only where the lines above are too coarse: separated by commas, such as"
        " approval.ended.",
    )
    tier = forms.ChoiceField(
        label="How much may leave by it",
        choices=Tier.choices,
        help_text="Arguments never leave, by any channel.",
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name in ("to", "url"):  # each is needed by the kinds that show it
            without_hint(self.fields[name])

    def clean_subjects(self) -> list[str]:
        found = _words(self.cleaned_data["subjects"])
        wrong = [one for one in found if not SUBJECT.fullmatch(one)]
        if len(found) > SUBJECTS_MAX or wrong:
            raise forms.ValidationError(
                f"At most {SUBJECTS_MAX} subjects, each of letters, dots, _ and *."
            )
        return found

    def kept_subjects(self) -> list[str]:
        """What is chosen and what is typed; none means all."""
        return list(dict.fromkeys(self.cleaned_data["carries"] + self.cleaned_data["subjects"]))

    def kept_settings(self) -> dict[str, Any]:
        mails = self.cleaned_data["kind"] == ChannelKind.MAIL
        return {"to": _words(self.cleaned_data["to"])} if mails else {}

    def kept_secret(self) -> dict[str, str] | None:
        said = self.cleaned_data
        return {name: said[name] for name in KINDS[said["kind"]].secrets} or None


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[\s,;]+", text) if word]


class SettingsForms:
    """The settings, what differs from them in the sandbox, and the controls: sent together."""

    def __init__(self, one: Connection, posted: Any = None) -> None:
        plug = registry.get(one.connector)
        schema, offered = plug.settings_schema, plug.offered()
        self.asks_for_more = bool(posted) and "more" in posted
        self.settings = SchemaForm(
            posted, schema=schema, given=one.settings, offered=offered, prefix="settings"
        )
        self.sandbox = SchemaForm(
            posted,
            schema=schema,
            given=one.sandbox_settings,
            overlay=True,
            offered=offered,
            prefix="sandbox",
        )
        shown = {"concurrency": one.concurrency, "link": one.link, "revision": one.revision}
        self.controls = ControlsForm(posted, initial=shown)
        if self.asks_for_more:
            self.settings.without_errors()
            self.sandbox.without_errors()

    @property
    def all(self) -> tuple[SchemaForm, SchemaForm, ControlsForm]:
        return self.settings, self.sandbox, self.controls

    @property
    def is_wrong(self) -> bool:
        return any(form.errors for form in self.all)
