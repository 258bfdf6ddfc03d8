"""What is answered when a page fails. A database that is away, full of callers or holding on to a
row is no failure of the desk's: 503, and when to come back. Nor is a text that cannot be kept: 400.
"""

import sys

from django.db import DataError, InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.template import loader
from django.views.defaults import bad_request, server_error

from approvals.policy import Unreadable

DATABASE_AWAY = (OperationalError, InterfaceError)
RETRY_SECONDS = 2


def failed(request: HttpRequest) -> HttpResponse:
    """Django's `handler500`, called while the error is handled."""
    error = sys.exc_info()[1]
    if isinstance(error, Unreadable):
        return unreadable(request, error)
    if isinstance(error, DataError) and "NUL" in str(error):
        return bad_request(request, error)
    if not isinstance(error, DATABASE_AWAY):
        return server_error(request)
    page = loader.get_template("503.html").render()
    return come_back(HttpResponse(page, status=503))


def unreadable(request: HttpRequest, error: Unreadable) -> HttpResponse:
    """Nothing here can be judged: what is wrong with the policy, and the way to its page."""
    match = request.resolver_match
    told = {"slug": match.kwargs.get("workspace", "") if match else "", "problems": error.problems}
    page = loader.get_template("policy_unreadable.html").render(told)
    return come_back(HttpResponse(page, status=503))


def come_back(answer: HttpResponse) -> HttpResponse:
    """Say when to try again."""
    answer["Retry-After"] = str(RETRY_SECONDS)
    answer["Cache-Control"] = "no-store"
    return answer
