"""What every page of Django's is given, and what is answered when one fails.

A database that is away, full of callers or holding on to a row is no failure of the desk's: 503,
and when to come back; the same of what counts attempts to log in. Nor is a text that cannot be
kept: 400. Middleware runs in the event loop or
in a thread, as the view does.
"""

import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit

from allauth.utils import get_request_param
from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.contrib.sessions.exceptions import SessionInterrupted
from django.db import DataError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, resolve_url
from django.template import loader
from django.urls import NoReverseMatch, Resolver404, ResolverMatch, resolve, reverse
from django.views.defaults import server_error
from redis import RedisError

from approvals.policy import PolicyUnreadable
from edge.asgi import FOR_PROGRAMS, PROBLEM
from ledger import disclosure
from workspaces import fresh_login
from workspaces.keys import Caller
from workspaces.models import PersonToken, User, Workspace
from workspaces.pages import found_before, problem_response
from workspaces.replica import DATABASE_AWAY

REDIRECT, NOT_FOUND, NOT_ALLOWED = 302, 404, 405
WORKSPACE_PARTS = 2
"""Of an address: `/w/acme/`."""
Answer = HttpResponseBase | Awaitable[HttpResponseBase]


class AfterTheView:
    """Middleware that makes an answer into another one, in the event loop or in a thread."""

    sync_capable = async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Answer]) -> None:
        self._get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Answer:
        answer = self._get_response(request)
        if isinstance(answer, HttpResponseBase):
            return self.changed(request, answer)
        return self._awaited(request, answer)

    async def _awaited(
        self, request: HttpRequest, answer: Awaitable[HttpResponseBase]
    ) -> HttpResponseBase:
        return self.changed(request, await answer)

    def changed(self, request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
        raise NotImplementedError


WAYS_IN = frozenset({
    "account_email", "account_set_password", "mfa_activate_totp", "mfa_add_webauthn",
    "openid_connect_login",
})  # fmt: skip
ADDS_AN_ADDRESS = frozenset({"action_add", "action_primary"})
COME_ANEW = (
    "Your account has no password and no second factor yet. To give it a way in, log out, log in"
    " again, and come back within five minutes."
)


class FirstWayIn(AfterTheView):
    """Whoever has no password and no second factor gives their account one just after a log-in
    alone, or whoever takes a session from them had the account for good. allauth asks such people
    for nothing.
    """

    def changed(self, request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
        return answer

    def __init__(self, get_response: Callable[[HttpRequest], Answer]) -> None:
        super().__init__(get_response)
        self.process_view: Callable[..., Any] = (
            self._alook_at if iscoroutinefunction(get_response) else self._look_at
        )

    def _look_at(self, request: HttpRequest, *_: Any) -> HttpResponse | None:
        page = getattr(request.resolver_match, "url_name", "")
        return self._refused(request, page) if page in WAYS_IN else None

    async def _alook_at(self, request: HttpRequest, *_: Any) -> HttpResponse | None:
        """No page goes by way of a thread for it, but for these few."""
        page = getattr(request.resolver_match, "url_name", "")
        return await sync_to_async(self._refused)(request, page) if page in WAYS_IN else None

    def _refused(self, request: HttpRequest, page: str) -> HttpResponse | None:
        if page == "account_email" and ADDS_AN_ADDRESS.isdisjoint(request.POST):
            return None
        if page == "openid_connect_login" and get_request_param(request, "process") != "connect":
            return None
        person = request.user
        if not person.is_authenticated or fresh_login.has_method(person):
            return None
        if fresh_login.came_lately(request):
            return None
        messages.error(request, COME_ANEW)
        return redirect("account_email" if page == "account_email" else "mfa_index")


class NoStore(AfterTheView):
    """No browser and no proxy keeps a page: after a log-out, *back* shows nothing of a workspace.

    A view that knows better says so itself. Static files never come here.
    """

    def changed(self, request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
        answer.headers.setdefault("Cache-Control", "no-store")
        return answer


class BackToThePage(AfterTheView):
    """Who sends a form after the session has ended logs in and is back at the page of the form.

    What was typed waits there, in the browser (static/js/keep.js), and is not sent by itself. The
    form's own address answers no GET, so a log-in that leads there would lose both.
    """

    def changed(self, request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
        log_in = resolve_url(settings.LOGIN_URL)
        is_sent_there = urlsplit(answer.headers.get("Location", "")).path == log_in
        if request.method == "GET" or answer.status_code != REDIRECT or not is_sent_there:
            return answer
        page = page_of_form(request)
        if "HX-Request" not in request.headers:
            return redirect_to_login(page)
        # No swap: the page would take an answer in place of the form for the end of what was typed.
        told = HttpResponse(status=401)
        told["HX-Redirect"] = f"{log_in}?{urlencode({'next': page})}"
        return told


def page_of_form(request: HttpRequest) -> str:
    """Where the form stood, if that is a page of a workspace here; else the front door."""
    said = request.headers.get("HX-Current-URL") or request.headers.get("Referer", "")
    try:
        here = urlsplit(said)
    except ValueError:
        return "/"
    if here.netloc != request.get_host() or not here.path.startswith("/w/"):
        return "/"
    return f"{here.path}?{here.query}" if here.query else here.path


class UpToThePage(AfterTheView):
    """Whoever opens the address of a form, which takes no GET, is led to the page above it.

    A refusal is shown under that address: a link of its page (`?tab=activity`, `?format=csv`,
    `?after=…`) leads there, and so does Enter in the address bar. What is no browser is told 405.
    """

    def changed(self, request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
        if request.path.startswith(FOR_PROGRAMS):
            return _for_a_program(answer)
        if answer.status_code != NOT_ALLOWED or not request.path.startswith("/w/"):
            return answer
        if request.method != "GET" or not _is_of_a_page(request):
            return answer
        query, match = request.META.get("QUERY_STRING", ""), request.resolver_match
        elsewhere = page_of(match) if match else ""
        above = elsewhere or quote(page_above(request.path))
        return redirect(f"{above}?{query}" if query else above)


def _for_a_program(answer: HttpResponseBase) -> HttpResponseBase:
    """What the framework itself says of a path or a method, as a problem."""
    if answer.status_code == NOT_ALLOWED:
        allowed = ", ".join(sorted(answer["Allow"].split(", ")))  # a set's, in any order
        told, kind = f"This path takes {allowed}.", f"{PROBLEM}method"
        problem = problem_response(NOT_ALLOWED, "Method not allowed", told, type=kind)
        problem["Allow"] = allowed
        return problem
    is_a_page = answer.headers.get("Content-Type", "").startswith("text/html")
    if answer.status_code == NOT_FOUND and is_a_page:
        kind = f"{PROBLEM}not-found"
        return problem_response(NOT_FOUND, "There is nothing at this path", type=kind)
    return answer


def _is_of_a_page(request: HttpRequest) -> bool:
    """Whether somebody opens it, or saves a file by a link of the page that stands there."""
    if "text/html" in request.headers.get("Accept", ""):
        return True
    try:
        page = urlsplit(request.headers.get("Referer", ""))
    except ValueError:
        return False
    return page.netloc == request.get_host() and unquote(page.path) == request.path


STANDS_ON = {
    "workspaces:delegate": "workspaces:members", "workspaces:make_team": "workspaces:members",
    "workspaces:make_agent": "workspaces:keys", "workspaces:make_token": "workspaces:keys",
    "approvals:revoke": "approvals:grants", "approvals:review_glass": "approvals:health",
    "ledger:reveal": "ledger:run", "ledger:reveal_event": "ledger:event",
    "ledger:download": "ledger:event",
}  # fmt: skip
"""Forms whose page is not the one above them."""


def page_of(form: ResolverMatch) -> str:
    """The address of the page that such a form stands on; empty of any other."""
    page = STANDS_ON.get(form.view_name)
    if page is None:
        return ""
    try:
        return reverse(page, kwargs=form.kwargs)
    except NoReverseMatch:  # it is the workspace's, and not one thing's of it
        return reverse(page, args=[form.kwargs["workspace"]])


def page_above(path: str) -> str:
    """The next address above a page's of a workspace that leads somewhere."""
    parts = path.strip("/").split("/")
    for length in range(len(parts) - 1, WORKSPACE_PARTS, -1):
        above = f"/{'/'.join(parts[:length])}/"
        with suppress(Resolver404):
            resolve(above)
            return above
    return f"/{'/'.join(parts[:WORKSPACE_PARTS])}/"


RETRY_SECONDS = 2


def failed(request: HttpRequest) -> HttpResponse:
    """Django's `handler500`, called while the error is handled."""
    error = sys.exc_info()[1]
    if isinstance(error, PolicyUnreadable):
        return unreadable(request, error)
    if isinstance(error, DataError) and "NUL" in str(error):
        return not_understood(request, error)
    if isinstance(error, RedisError):
        return _away("log_in_away.html")
    return _away() if isinstance(error, DATABASE_AWAY) else server_error(request)


def _away(template: str = "503.html") -> HttpResponse:
    return come_back(HttpResponse(loader.get_template(template).render(), status=503))


def not_understood(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's `handler400`. The one that comes with it looks for a token in the form first, so a
    form that cannot be read fails there once more, and nobody is left to answer.

    Of a session that could not be written at the end of a request nobody says that nothing was
    changed: it ended meanwhile, or the database went away.
    """
    if isinstance(exception, SessionInterrupted):
        unwritten = exception.__context__
        is_away = unwritten is not None and isinstance(unwritten.__context__, DATABASE_AWAY)
        return _away() if is_away else redirect(settings.LOGIN_URL)
    return HttpResponse(loader.get_template("400.html").render(), status=400)


def unreadable(request: HttpRequest, error: PolicyUnreadable) -> HttpResponse:
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


# The boundary: the last look at what is answered to a person, before it leaves.
#
# Views decide what of a payload they show (ledger/disclosure.py). Sentences that stand on pages are
# written in a hundred places, by agents, customers and outside systems; whatever secret is in one
# of them is taken out here for whoever lacks `view_sensitive`, on every page and at every endpoint
# of a workspace, so that a new page needs to do nothing. A card of an approval is whole for those
# who decide. Agents read only what they wrote, and public pages belong to the person whom they are
# about: neither is changed. A short answer that holds nothing does not ask for the permission.

View = Callable[[HttpRequest], HttpResponseBase]
LONG = 8_192
"""Characters. To look through more takes longer than to ask for the permission."""
TEXTS = ("text/", "application/json", "application/problem+json")


class Viewer(NamedTuple):
    person: User
    workspace: Workspace


def disclosing(answer: View) -> View:
    """Django middleware; innermost, so that length and headers are those of what is sent."""

    def answered(request: HttpRequest) -> HttpResponseBase:
        response = answer(request)
        kind = response.headers.get("Content-Type", "")
        if not isinstance(response, HttpResponse) or not kind.startswith(TEXTS):
            return response
        text = response.content.decode(response.charset or "utf-8", "replace")
        if len(text) > LONG and _sees(request):
            return response
        if not disclosure.holds_secret(text) or _sees(request):
            return response
        if "json" in kind:
            response.content = json.dumps(disclosure.without_secrets(json.loads(text)))
        else:
            response.content = disclosure.without_secrets(text)
        return response

    return answered


def reader_of(request: HttpRequest) -> Viewer | None:
    """The person who reads, and in which workspace; None where it is not one of a workspace."""
    caller = getattr(request, "auth", None)
    if isinstance(caller, PersonToken | Caller):
        return Viewer(caller.person, caller.workspace) if caller.person else None
    match = request.resolver_match
    slug = match.kwargs.get("workspace") if match else None
    person = getattr(request, "user", None)
    if slug is None or not isinstance(person, User):
        return None
    here = found_before(request, slug) or Workspace.objects.filter(slug=slug).first()
    return Viewer(person, here) if here else None


def _sees(request: HttpRequest) -> bool:
    """Whether the reader is shown secrets, or nobody of a workspace."""
    reader = reader_of(request)
    if reader is None:
        return True
    deciding = bool(getattr(request, "shows_a_call", False))
    return disclosure.sees(reader.person, reader.workspace, deciding=deciding)
