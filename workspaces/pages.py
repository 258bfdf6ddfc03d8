"""Pages: how a view finds its workspace and shows its answer.

The view names the part that an htmx request gets, never the client; whoever comes without
JavaScript gets the whole page.
"""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django_htmx.middleware import HtmxDetails

from workspaces.access import Codename, require, workspaces_of
from workspaces.models import User, Workspace

NUMBER_DIGITS_MAX = 18  # below 2**63, the largest a bigint holds


def is_number(said: str) -> bool:
    """Whether it can be a row's number: no row has one that the database could not hold.

    `isdigit` is not enough: “²” is a digit, and no number.
    """
    return said.isascii() and said.isdigit() and len(said) <= NUMBER_DIGITS_MAX


class Request(HttpRequest):
    """A request behind the log-in and htmx middleware."""

    user: User
    htmx: HtmxDetails
    shows_a_call: bool
    """Set by a view that puts a call in front of those who decide on it."""


def workspace_or_404(request: HttpRequest, slug: str) -> Workspace:
    """The workspace if the person may view it.

    A foreign one looks like none, so that nobody learns which workspaces exist.
    """
    found = workspaces_of(request.user, "view").filter(slug=slug).first()
    if found is None:
        raise Http404("There is no such workspace, or you are not in it.")
    return found


def workspace_to(act: Codename, request: Request, slug: str) -> Workspace:
    """The workspace in which the person wants to `act` (a codename of access.py).

    Raises Http404 where they may not view it, NotAllowed where they may view it and no more.
    """
    here = workspace_or_404(request, slug)
    require(request.user, act, here)
    return here


def page(
    request: HttpRequest,
    template: str,
    context: dict[str, Any],
    *,
    part: str | None = None,
    status: int = 200,
) -> HttpResponse:
    """Render `template`, or of it only `part` when htmx asks (and is not restoring its history)."""
    htmx: HtmxDetails | None = getattr(request, "htmx", None)
    alone = part is not None and htmx and not htmx.history_restore_request and not htmx.boosted
    return render(request, f"{template}#{part}" if alone else template, context, status=status)
