"""Forms of the policy pages. They check words; the verbs check rules."""

from typing import Any

from django import forms

from approvals.models import PauseKind
from approvals.policy.reading import DOCUMENT_CHARACTERS_MAX


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
    note = forms.CharField(label="Why", max_length=400, required=False)


class PauseForm(forms.Form):
    kind = forms.ChoiceField(label="What", choices=PauseKind.choices)
    name = forms.CharField(
        label="Which",
        max_length=200,
        required=False,
        help_text="An agent, a connection, a tool (globs work), or a run’s id; empty: everything.",
    )
    reason = forms.CharField(label="Why", max_length=400)

    def clean(self) -> dict[str, Any]:
        said: dict[str, Any] = super().clean() or {}
        everything = said.get("kind") == PauseKind.WORKSPACE
        if everything and said.get("name"):
            self.add_error("name", "The whole workspace is paused without a name.")
        if not everything and not said.get("name"):
            self.add_error("name", "Say which one.")
        return said
