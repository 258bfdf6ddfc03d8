"""Whose clock a page goes by: the person's own zone, else the one that their browser is in.

One clock to a page: what stands there, what is typed there and what a script writes go by the same.
Without a choice the browser tells its zone in a cookie, which decides nothing but how times look.
"""

from collections.abc import Callable
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone

COOKIE = "zone"
"""Written by static/js/moments.js."""

View = Callable[[HttpRequest], HttpResponseBase]


@cache
def names() -> frozenset[str]:
    """Every zone that is known here."""
    return frozenset(available_timezones())


def of_browser(request: HttpRequest) -> str:
    """The zone that the person's browser says it is in; empty where it says none that we know."""
    said = request.COOKIES.get(COOKIE, "")
    return said if said in names() else ""


def zone_of(request: HttpRequest) -> ZoneInfo:
    chosen = getattr(request.user, "timezone", "")
    return ZoneInfo(chosen or of_browser(request) or "UTC")


def by_their_clock(answer: View) -> View:
    """Django middleware: pages of a workspace go by the clock of who reads them."""

    def answered(request: HttpRequest) -> HttpResponseBase:
        if not request.path.startswith("/w/") or not request.user.is_authenticated:
            return answer(request)
        with timezone.override(zone_of(request)):
            return answer(request)

    return answered
