"""Nobody signs up by themselves: people come by invitation, by the one-time set-up link, or from a
company's identity provider (single_sign_on.py).

And nobody is kept out by a stranger who types wrong passwords for them. What is counted is guesses
at an account from one address; a device on which the person has logged in before is counted apart,
and so is never met by what others guess. A guess from ever new addresses is slowed down for devices
that nobody knows, unless a second factor guards the account (docs/decisions/accounts.md).
"""

import secrets
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from allauth.account import forms as accounts
from allauth.account.adapter import DefaultAccountAdapter, get_adapter
from allauth.core.internal import ratelimit
from allauth.core.internal.cryptokit import normalize_user_code
from allauth.mfa import app_settings as mfa
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.base import forms as factors
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal import auth as totp
from allauth.mfa.utils import decrypt
from django import forms
from django.conf import settings
from django.contrib.auth import password_validation as rules
from django.contrib.auth.password_validation import password_validators_help_texts
from django.contrib.sessions.backends import db
from django.core import signing
from django.db import connection
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse

from workspaces import clock, independence
from workspaces.models import User

DEVICE_COOKIE = "amends_device"
DEVICE_SECONDS = 180 * 24 * 3600
ACCOUNTS_PER_DEVICE_MAX = 5

LOGIN_FAILED = "login_failed"
FROM_AN_ADDRESS = {LOGIN_FAILED: "10/m/ip,5/300s/key"}
FROM_A_KNOWN_DEVICE = {LOGIN_FAILED: "10/300s/key"}
FROM_ALL_UNKNOWN_DEVICES = {LOGIN_FAILED: "100/3600s/key"}


WRONG = {
    "account_inactive": "This account is closed. An administrator of your workspace can open it.",
    "cannot_remove_primary_email": "This is the main address: make another one that first.",
    "duplicate_email": "It is an address of this account already.",
    "email_password_mismatch": "There is no account with this address and this password.",
    "email_taken": "Another account has this address.",
    "enter_current_password": "This is not your password.",
    "incorrect_code": "This is not the code that is shown now, nor a recovery code that is left.",
    "incorrect_password": "This is not your password.",
    "too_many_login_attempts": "Too many wrong tries. Wait some minutes, then try again.",
    "unverified_primary_email": "Prove first that the address is yours: the mail has the link.",
}
SAID = {
    "account/messages/cannot_delete_primary_email.txt": WRONG["cannot_remove_primary_email"],
    "account/messages/email_confirmation_sent.txt": (
        "A link is on its way to {email}: it asks you to confirm that the address is yours."
    ),
    "account/messages/email_confirmed.txt": "{email} is proven to be yours.",
    "account/messages/email_deleted.txt": "{email} is removed.",
    "account/messages/logged_in.txt": "",
    "account/messages/logged_out.txt": "You are logged out.",
    "account/messages/password_changed.txt": "Your password is changed.",
    "account/messages/password_set.txt": "Your password is set.",
    "account/messages/primary_email_set.txt": "It is the main address now.",
    "account/messages/unverified_primary_email.txt": WRONG["unverified_primary_email"],
    "mfa/messages/recovery_codes_generated.txt": "The recovery codes are new: keep them, on paper.",
    "mfa/messages/totp_activated.txt": "From now on you log in with the codes of your app, too.",
    "mfa/messages/totp_deactivated.txt": "The codes of your app are off.",
    "mfa/messages/webauthn_added.txt": "The key is added: touch it when you log in.",
    "mfa/messages/webauthn_removed.txt": "The key is removed.",
    "usersessions/messages/sessions_logged_out.txt": "All others are logged out.",
}
"""What allauth tells after an act, by its template; nothing where there are no words."""


class SecondFactors(DefaultMFAAdapter):  # type: ignore[misc]  # allauth ships no types
    error_messages = DefaultMFAAdapter.error_messages | {"incorrect_code": WRONG["incorrect_code"]}


class Site(NamedTuple):
    """What a mail calls the place that it comes from."""

    name: str
    domain: str


class InvitedOnly(DefaultAccountAdapter):  # type: ignore[misc]  # allauth ships no types
    error_messages = DefaultAccountAdapter.error_messages | WRONG

    def add_message(
        self,
        request: HttpRequest,
        level: int,
        message_template: str | None = None,
        message_context: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        """In our words; what we have none for is told in allauth's."""
        words = SAID.get(message_template or "")
        if words is not None:
            message_template, more["message"] = None, words.format(**(message_context or {}))
        super().add_message(request, level, message_template, message_context, **more)

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """A mail leads to the desk, whatever host the request named that asked for it: a stranger
        may ask for one to anybody, and its link opens an account or proves an address.
        """
        desk = urlsplit(settings.AMENDS_URL)
        links = {
            name: urlsplit(value)._replace(scheme=desk.scheme, netloc=desk.netloc).geturl()
            for name, value in context.items()
            if name.endswith("_url") and isinstance(value, str)
        }
        site = Site(name=desk.netloc, domain=desk.netloc)
        super().send_mail(template_prefix, email, context | links | {"current_site": site})

    def should_send_confirmation_mail(self, request: HttpRequest, *_: Any, **__: Any) -> bool:
        """Not in the middle of a company's log-in, which a mail server that is away would stop:
        who has an address to prove asks for the mail on the page for it.
        """
        return not request.path.startswith("/accounts/oidc/")

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Count this try; raises a ValidationError where there were too many of its kind."""
        email = str(credentials.get("email", "")).lower()
        used: list[Any] = []
        self._login_failed_rl_usage = ratelimit.RateLimitUsage(usage=used)
        for rates, key in self._limits(request, email):
            found = ratelimit.consume(
                request, app="allauth.account", action=LOGIN_FAILED, config=rates, key=key
            )
            if found is None:
                self._login_failed_rl_usage.rollback()  # who is refused guesses nothing
                raise self.validation_error("too_many_login_attempts")
            used += found.usage

    def _limits(self, request: HttpRequest, email: str) -> list[tuple[dict[str, str], str]]:
        device = device_of(request)
        if email in device.get("accounts", []):
            return [(FROM_A_KNOWN_DEVICE, f"device:{device['id']}:{email}")]
        found = [(FROM_AN_ADDRESS, f"address:{ratelimit.get_ip(request)}:{email}")]
        if not Authenticator.objects.filter(user__email=email).exists():
            found.append((FROM_ALL_UNKNOWN_DEVICES, f"unknown:{email}"))
        return found

    def _delete_login_attempts_cached_email(self, request: HttpRequest, **credentials: Any) -> None:
        """A password was set anew by the link in a mail: what was counted before is void."""
        email = str(credentials.get("email", "")).lower()
        for rates, key in self._limits(request, email):
            ratelimit.clear(
                request, app="allauth.account", action=LOGIN_FAILED, config=rates, key=key
            )

    def post_login(self, request: HttpRequest, user: User, **more: Any) -> HttpResponse:
        """Log-in is through, with the second factor where there is one: know this device."""
        response: HttpResponse = super().post_login(request, user, **more)
        remember(request, response, user.email)
        return response


def device_of(request: HttpRequest) -> dict[str, Any]:
    """The browser's own id, and the addresses that logged in on it; empty where it has none."""
    try:
        found: dict[str, Any] = signing.loads(
            request.COOKIES.get(DEVICE_COOKIE, ""), salt=DEVICE_COOKIE, max_age=DEVICE_SECONDS
        )
    except signing.BadSignature:
        return {}
    return found


def remember(request: HttpRequest, response: HttpResponse, email: str) -> None:
    device = device_of(request)
    others = [one for one in device.get("accounts", []) if one != email.lower()]
    known = {
        "id": device.get("id") or secrets.token_hex(16),
        "accounts": [email.lower(), *others][:ACCOUNTS_PER_DEVICE_MAX],
    }
    response.set_cookie(
        DEVICE_COOKIE,
        signing.dumps(known, salt=DEVICE_COOKIE),
        max_age=DEVICE_SECONDS,
        path="/accounts/",
        secure=settings.SECURE,
        httponly=True,
        samesite="Lax",
    )


# allauth's forms of an account, with our labels and without words in the place of what is typed.
# What they check and do is allauth's.

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
ReauthenticateForm = _in_our_words(accounts.ReauthenticateForm)


class AddEmailForm(OurWords, accounts.AddEmailForm):  # type: ignore[misc]  # allauth ships no types
    """A further address is a further way in, so the first one has to be proven: else a stranger who
    made the account under somebody's address still had theirs once that person has come.
    """

    def clean_email(self) -> str:
        if not independence.is_proven(self.user):
            raise get_adapter().validation_error("unverified_primary_email")
        return str(super().clean_email())


class SessionStore(db.SessionStore):
    """Sessions end by the database's clock: a web process that is weeks ahead logs nobody out, and
    what begins in it lives no longer than others. Django's own go by the process's clock.
    """

    def create_model_instance(self, data: dict[str, Any]) -> Any:
        made = super().create_model_instance(data)
        made.expire_date = Now() + timedelta(seconds=self.get_expiry_age())
        return made

    async def acreate_model_instance(self, data: dict[str, Any]) -> Any:
        made = await super().acreate_model_instance(data)
        made.expire_date = Now() + timedelta(seconds=await self.aget_expiry_age())
        return made

    def _living(self) -> QuerySet[Any]:
        return self.model.objects.filter(session_key=self.session_key, expire_date__gt=Now())

    def _get_session_from_db(self) -> Any:
        return self._known(self._living().first())

    async def _aget_session_from_db(self) -> Any:
        return self._known(await self._living().afirst())

    def _known(self, found: Any) -> Any:
        if found is None:
            self._session_key = None
        return found

    @classmethod
    def clear_expired(cls) -> None:
        cls.get_model_class().objects.filter(expire_date__lt=Now()).delete()


def steps_by_the_database() -> Iterator[int]:
    """In place of allauth's, which go by the process's clock: where that is off, no code of a
    phone was right.
    """
    now = int(clock.now().timestamp()) // mfa.TOTP_PERIOD
    yield from range(now - mfa.TOTP_TOLERANCE, now + mfa.TOTP_TOLERANCE + 1)


totp.yield_hotp_counters_from_time = steps_by_the_database

STEPS_USED_UP = 10
"""Codes from the last one that was used back which let nobody in: five minutes of them. What a
clock that went far ahead once let in is used up for nobody."""
USE_STEP = """
    UPDATE mfa_authenticator SET data = data || jsonb_build_object('used_step', %(step)s::bigint)
    WHERE id = %(id)s AND NOT coalesce(
        (data ->> 'used_step')::bigint BETWEEN %(step)s AND %(step)s + %(used_up)s, false)
"""


class OncePerCode:
    """A code of an app is taken once (RFC 6238, section 5.2), and the database says so: allauth
    remembers codes in the cache, which may be emptied.
    """

    authenticator: Authenticator

    def clean_code(self) -> str:
        steps = [*totp.yield_hotp_counters_from_time()]
        code = str(super().clean_code())  # type: ignore[misc]  # allauth ships no types
        if self.authenticator.type == Authenticator.Type.TOTP:
            secret = decrypt(self.authenticator.data["secret"])
            given = normalize_user_code(code)
            steps.append(steps[-1] + 1)  # it may have turned meanwhile
            shown = {totp.format_hotp_value(totp.hotp_value(secret, one)): one for one in steps}
            used = {"step": shown[given], "id": self.authenticator.pk, "used_up": STEPS_USED_UP}
            with connection.cursor() as cursor:
                cursor.execute(USE_STEP, used)
                if not cursor.rowcount:
                    raise get_adapter().validation_error("incorrect_code")
        return code


class CodeForm(OncePerCode, factors.AuthenticateForm):  # type: ignore[misc]  # as above
    """At the log-in."""


class CodeAgainForm(OncePerCode, factors.ReauthenticateForm):  # type: ignore[misc]  # as above
    """Of who is logged in."""


# What a password has to be, in our words: the rules are Django's, what they say is said here. Each
# rule answers with one sentence that says what to do; what they say before stands in one line
# under every field for a new password.

LENGTH_MIN = 12


class LongEnough(rules.MinimumLengthValidator):
    def __init__(self, min_length: int = LENGTH_MIN) -> None:
        super().__init__(min_length)

    def get_error_message(self) -> str:
        return f"This password is too short: it takes at least {self.min_length} characters."

    def get_help_text(self) -> str:
        return f"At least {self.min_length} characters."


class NotTheirOwnName(rules.UserAttributeSimilarityValidator):
    """Name and address: whoever knows a person knows these."""

    def __init__(self) -> None:
        super().__init__(user_attributes=("name", "email"))

    def get_error_message(self) -> str:
        return "This password is nearly your name or your address: choose something else."

    def get_help_text(self) -> str:
        return "Not your name, not your address."


class NotWellKnown(rules.CommonPasswordValidator):
    def get_error_message(self) -> str:
        return "Many people have this password, so it is guessed first: choose another."

    def get_help_text(self) -> str:
        return "Not one that many people have."


class NotOnlyDigits(rules.NumericPasswordValidator):
    def get_error_message(self) -> str:
        return "This password has only digits: add letters or words."

    def get_help_text(self) -> str:
        return "Not only digits."
