"""Nobody signs up by themselves: people come by invitation or by the one-time set-up link."""

from allauth.account.adapter import DefaultAccountAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from django.http import HttpRequest


class InvitedOnly(DefaultAccountAdapter):  # type: ignore[misc]  # allauth ships no types
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False


class InvitedOnlySocial(DefaultSocialAccountAdapter):  # type: ignore[misc]  # as above
    """Single sign-on logs in who is already invited, and opens no account."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: object) -> bool:
        return False
