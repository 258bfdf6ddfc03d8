"""When a person last proved who they are, by allauth's own record in the session.

Stricter than allauth's: single sign-on proves nothing here; it takes a method of one's own. And
each record is given the database's time beside allauth's own, which is that of the web process at
which somebody logged in: another one decides by it.
"""

from datetime import UTC, datetime
from typing import Any

from allauth.account.authentication import (
    AUTHENTICATION_METHODS_SESSION_KEY,
    get_authentication_records,
)
from allauth.account.signals import authentication_step_completed
from django.contrib.auth import HASH_SESSION_KEY
from django.dispatch import receiver
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode

from workspaces import clock
from workspaces.models import User
from workspaces.pages import Request

FRESH_SECONDS = 300
PROVING = frozenset({"password", "mfa"})
BY_OTHERS = frozenset({"socialaccount"})
NO_METHOD = (
    "This needs a password or second factor of your own: set one up first, within five minutes of"
    " a log-in."
)

PROVED_AT = "proved_at"
"""In a record of the session: seconds since 1970, by the database's clock."""

EARLY_SECONDS_MAX = 5
"""A web process knows the database's time as exactly as its answer was quick; what is further ahead
proves nothing."""


@receiver(authentication_step_completed, dispatch_uid="when a person proved who they are")
def _write_the_time(request: HttpRequest, **_: Any) -> None:
    """allauth has just written its own record of it."""
    records = request.session[AUTHENTICATION_METHODS_SESSION_KEY]
    records[-1][PROVED_AT] = clock.database_time().timestamp()
    request.session[AUTHENTICATION_METHODS_SESSION_KEY] = records
    if request.user.is_authenticated:  # its hash may have been renewed as it was checked
        request.session[HASH_SESSION_KEY] = request.user.get_session_auth_hash()


def login_at(request: Request) -> datetime | None:
    """The time of the last proof in this session, or None."""
    return _last_of(request, PROVING)


def came_lately(request: HttpRequest) -> bool:
    """Whether somebody logged in minutes ago, in whatever way: what gives an account its first
    password or second factor asks for no more, and for no less.
    """
    return is_fresh(_last_of(request, PROVING | BY_OTHERS))


def _last_of(request: HttpRequest, methods: frozenset[str]) -> datetime | None:
    records: list[dict[str, Any]] = get_authentication_records(request, request.user)
    times = [one[PROVED_AT] for one in records if one.get("method") in methods and PROVED_AT in one]
    return datetime.fromtimestamp(max(times), UTC) if times else None


def is_fresh(at: datetime | None) -> bool:
    if at is None:
        return False
    return -EARLY_SECONDS_MAX <= (clock.now() - at).total_seconds() <= FRESH_SECONDS


def has_method(person: User) -> bool:
    """Whether the person has a password or a second factor to prove themselves with."""
    from allauth.mfa.models import Authenticator

    return person.has_usable_password() or Authenticator.objects.filter(user=person).exists()


def address(person: User, then: str) -> str:
    """Where to prove it again, coming back to `then` afterwards."""
    name = "account_reauthenticate" if person.has_usable_password() else "mfa_reauthenticate"
    return f"{reverse(name)}?{urlencode({'next': then})}"


def url_to_prove(request: Request, then: str) -> str:
    """The same; empty where they proved it just now."""
    return "" if is_fresh(login_at(request)) else address(request.user, then)


def asked_for(request: Request, then: str) -> dict[str, str]:
    """What a page says whose acts take a fresh log-in: where to prove it, or why nobody can."""
    url = url_to_prove(request, then)
    why_not = NO_METHOD if url and not has_method(request.user) else ""
    return {"fresh_login_url": url, "no_method": why_not}
