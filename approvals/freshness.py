"""When a person last proved who they are, by allauth's own record in the session.

Our own check, and stricter than allauth's: a log-in through somebody else's door (single sign-on)
proves nothing here, and nobody passes without a method of their own.
"""

from datetime import UTC, datetime
from typing import Any

from allauth.account.authentication import get_authentication_records
from django.urls import reverse
from django.utils.http import urlencode

from workspaces.models import User
from workspaces.pages import Request

PROVING = frozenset({"password", "mfa"})


def login_at(request: Request) -> datetime | None:
    """The time of the last proof in this session, or None."""
    records: list[dict[str, Any]] = get_authentication_records(request, request.user)
    times = [one["at"] for one in records if one.get("method") in PROVING and "at" in one]
    return datetime.fromtimestamp(max(times), UTC) if times else None


def has_method(person: User) -> bool:
    """Whether the person has a password or a second factor to prove themselves with."""
    from allauth.mfa.models import Authenticator

    return person.has_usable_password() or Authenticator.objects.filter(user=person).exists()


def address(person: User, then: str) -> str:
    """Where to prove it again, coming back to `then` afterwards."""
    name = "account_reauthenticate" if person.has_usable_password() else "mfa_reauthenticate"
    return f"{reverse(name)}?{urlencode({'next': then})}"
