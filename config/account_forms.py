"""allauth's forms of an account, with our labels and without words in the place of what is typed.

What they check and do is allauth's.
"""

from typing import Any

from allauth.account import forms as accounts
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


class LogInForm(OurWords, accounts.LoginForm):  # type: ignore[misc]  # allauth ships no types
    pass


class ChangePasswordForm(OurWords, accounts.ChangePasswordForm):  # type: ignore[misc]
    pass


class SetPasswordForm(OurWords, accounts.SetPasswordForm):  # type: ignore[misc]
    pass


class ResetPasswordForm(OurWords, accounts.ResetPasswordForm):  # type: ignore[misc]
    pass


class ResetPasswordKeyForm(OurWords, accounts.ResetPasswordKeyForm):  # type: ignore[misc]
    pass


class AddEmailForm(OurWords, accounts.AddEmailForm):  # type: ignore[misc]
    pass


class ReauthenticateForm(OurWords, accounts.ReauthenticateForm):  # type: ignore[misc]
    pass
