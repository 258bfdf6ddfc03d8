"""What people write: one rule, which keeps it whole or refuses it in words."""

import pytest
from django import forms

from workspaces.forms import WrittenField
from workspaces.free_text import InvalidInput, kept_text


def test_what_a_person_wrote_is_kept_as_their_browser_counts_it():
    assert kept_text("  two\r\nlines\x00 ", 9) == "two\nlines"


def test_what_is_too_long_or_missing_is_refused_and_never_cut():
    with pytest.raises(InvalidInput, match="it has 1,001 characters, of which 1,000 can be kept"):
        kept_text("x" * 1_001, 1_000)
    with pytest.raises(InvalidInput, match="Say why"):
        kept_text(" \x00\r\n", 1_000, asking="Say why.")


def test_a_field_of_a_form_refuses_by_the_same_rule_and_lets_no_browser_cut():
    class Form(forms.Form):
        why = WrittenField(characters_max=4)

    assert "maxlength" not in str(Form()["why"])
    assert Form({"why": " four "}).is_valid()
    assert Form({"why": "fives"}).errors["why"] == [
        "Shorten what you wrote: it has 5 characters, of which 4 can be kept."
    ]
