"""When a person last proved who they are, by allauth's own record in the session.

Stricter than allauth's: single sign-on proves nothing here; it takes a method of one's own.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from allauth.account.authentication import get_authentication_records
from django.urls import reverse
from django.utils.http import urlencode

from workspaces import clock
from workspaces.models import User
from workspaces.pages import Request

FRESH_SECONDS = 300
PROVING = frozenset({"password", "mfa"})
NO_METHOD = "This needs a password or second factor of your own: set one up first."


def login_at(request: Request) -> datetime | None:
    """The time of the last proof in this session, or None."""
    records: list[dict[str, Any]] = get_authentication_records(request, request.user)
    times = [one["at"] for one in records if one.get("method") in PROVING and "at" in one]
    return datetime.fromtimestamp(max(times), UTC) if times else None


def is_fresh(at: datetime | None) -> bool:
    return at is not None and clock.now() - at <= timedelta(seconds=FRESH_SECONDS)


def has_method(person: User) -> bool:
    """Whether the person has a password or a second factor to prove themselves with."""
    from allauth.mfa.models import Authenticator

    return person.has_usable_password() or Authenticator.objects.filter(user=person).exists()


def address(person: User, then: str) -> str:
    """Where to prove it again, coming back to `then` afterwards."""
    name = "account_reauthenticate" if person.has_usable_password() else "mfa_reauthenticate"
    return f"{reverse(name)}?{urlencode({'next': then})}"
