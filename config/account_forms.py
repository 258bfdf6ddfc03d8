"""allauth's forms of an account, with our labels and without words in the place of what is typed.

What they check and do is allauth's.
"""

from typing import Any

from allauth.account import forms as accounts
from django import forms
from django.contrib.auth.password_validation import password_validators_help_texts

LABELS = {
    "login": "E-mail address",
    "email": "E-mail address",
    "password": "Password",
    "oldpassword": "Your password now",
    "password1": "New password",
    "password2": "The same once more",
}


class OurWords:
    fields: dict[str, Any]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name, field in self.fields.items():
            field.label = LABELS.get(name, field.label)
            field.widget.attrs.pop("placeholder", None)
        if "password1" in self.fields:
            self.fields["password1"].help_text = " ".join(password_validators_help_texts())


def _in_our_words(form: type[forms.Form]) -> Any:
    return type(form.__name__, (OurWords, form), {})


LoginForm = _in_our_words(accounts.LoginForm)
ChangePasswordForm = _in_our_words(accounts.ChangePasswordForm)
SetPasswordForm = _in_our_words(accounts.SetPasswordForm)
ResetPasswordForm = _in_our_words(accounts.ResetPasswordForm)
ResetPasswordKeyForm = _in_our_words(accounts.ResetPasswordKeyForm)
AddEmailForm = _in_our_words(accounts.AddEmailForm)
ReauthenticateForm = _in_our_words(accounts.ReauthenticateForm)
