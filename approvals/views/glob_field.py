"""Which tools are meant, as a field: a glob, refused where the policy would refuse it."""

from typing import Any

from django import forms

from approvals.policy import document
from workspaces.forms import OneLine


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
