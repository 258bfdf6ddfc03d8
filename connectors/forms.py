"""Forms of the connections' pages. Settings are JSON, as connectors declare them."""

import json
from typing import Any

from django import forms

from connectors import registry
from connectors.connections import SETTINGS_BYTES_MAX, credential_fields
from connectors.contract import Connector

CREDENTIAL_CHARACTERS_MAX = 8_000


class SettingsField(forms.CharField):
    """A JSON object; a mistake is told with its line and column."""

    widget = forms.Textarea(attrs={"rows": 14, "spellcheck": "false", "class": "mono"})

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value) or ""
        if len(text.encode()) > SETTINGS_BYTES_MAX:
            raise forms.ValidationError(f"Settings may have {SETTINGS_BYTES_MAX} bytes.")
        try:
            said = json.loads(text or "{}")
        except ValueError as wrong:
            raise forms.ValidationError(f"This is not JSON: {wrong}") from None
        if not isinstance(said, dict):
            raise forms.ValidationError("Settings are a JSON object.")
        return said

    def prepare_value(self, value: Any) -> Any:
        return json.dumps(value, indent=2, ensure_ascii=False) if isinstance(value, dict) else value


class NewConnectionForm(forms.Form):
    name = forms.SlugField(
        label="Name", max_length=80, help_text="As twins in the policy name it, such as payments."
    )
    connector = forms.ChoiceField(label="Connector")
    settings = SettingsField(label="Settings (JSON)")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["connector"].choices = [  # type: ignore[attr-defined]
            (name, f"{registry.get(name).title} ({name})") for name in registry.names()
        ]


class SettingsForm(forms.Form):
    settings = SettingsField(label="Settings (JSON)")
    sandbox_settings = SettingsField(
        label="Sandbox settings (JSON)",
        required=False,
        help_text="Laid over the settings while rehearsing. Without any, nothing is rehearsed.",
    )
    revision = forms.IntegerField(widget=forms.HiddenInput())


class CredentialForm(forms.Form):
    """One field for each part of the connector's credential; what is kept is never shown again."""

    def __init__(self, *args: Any, connector: Connector, **options: Any) -> None:
        super().__init__(*args, **options)
        for name in credential_fields(connector):
            self.fields[name] = forms.CharField(
                label=name.replace("_", " ").capitalize(),
                required=False,
                max_length=CREDENTIAL_CHARACTERS_MAX,
                widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
            )

    def value(self) -> dict[str, str]:
        return {name: text for name, text in self.cleaned_data.items() if text}


class TryForm(forms.Form):
    """Observe one target: nothing is written."""

    operation = forms.ChoiceField(label="Operation")
    target_type = forms.CharField(label="Type of target", max_length=120)
    target_id = forms.CharField(label="Id of target", max_length=400)

    def __init__(self, *args: Any, operations: list[str], **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["operation"].choices = [  # type: ignore[attr-defined]
            (name, name) for name in operations
        ]


class RehearseForm(TryForm):
    """Try one twin in the sandbox, as it would run in earnest."""

    args = SettingsField(label="Arguments (JSON)", required=False)
