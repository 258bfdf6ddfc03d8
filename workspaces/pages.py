"""Pages: how a view finds its workspace and shows its answer.

The view names the part that an htmx request gets, never the client; whoever comes without
JavaScript gets the whole page. A page of a list starts after the last row seen, so page 40,000
costs what page 1 costs.

One clock to a page: what stands there, what is typed there and what a script writes go by the
person's own zone. Without a choice the browser tells its zone in a cookie, which decides nothing
but how times look.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from datetime import datetime
from functools import cache
from http import HTTPStatus
from operator import attrgetter
from typing import Any, TypeVar
from urllib.parse import urlencode
from zoneinfo import ZoneInfo, available_timezones

from django.conf import settings
from django.db.models import Model, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils import timezone, translation
from django.utils.translation import gettext as _
from django_htmx.middleware import HtmxDetails

from workspaces import exporting, formatting
from workspaces.access import Codename, require, workspaces_of
from workspaces.models import User, Workspace
from workspaces.request_cache import request_cache

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


HERE = "here"
"""Where a request keeps its workspace, once that was looked up."""


def found_before(request: HttpRequest, slug: str) -> Workspace | None:
    """The workspace, where the request has looked it up already."""
    found: Workspace | None = getattr(request, HERE, None)
    return found if found is not None and found.slug == slug else None


def workspace_or_404(request: HttpRequest, slug: str) -> Workspace:
    """The workspace if the person may view it.

    A foreign one looks like none, so that nobody learns which workspaces exist.
    """
    found = workspaces_of(request.user).filter(slug=slug).first()
    if found is None:
        raise Http404("There is no such workspace, or you are not in it.")
    setattr(request, HERE, found)
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


def still_seen(request: HttpRequest, status: int) -> str:
    """What a form was made for (`seen`), where it comes back with a complaint: what others have
    changed since then is still not on it. Empty of any other answer.
    """
    return request.POST.get("seen", "") if status == HTTPStatus.UNPROCESSABLE_ENTITY else ""


ROWS_A_PAGE = 50
COUNT_MAX = 1_000
"""So far rows are counted for a chip or a pager; beyond it is `1 000+`."""

Row = TypeVar("Row", bound=Model)


def page_of(
    request: HttpRequest, rows: QuerySet[Any] | Sequence[Any], key: Callable[[Any], Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Rows of this page, the first ones of `rows`, and what parts/pager.html needs. Each such list
    is had as a file, too (`exporting`).

    `key(row)` is that after which the next page starts.
    """
    found = list(rows[: ROWS_A_PAGE + 1])
    shown = found[:ROWS_A_PAGE]
    label = f"{formatting.count(len(shown))} shown"
    newer = _url(request, None) if request.GET.get("after") else ""
    older = _url(request, str(key(shown[-1]))) if len(found) > ROWS_A_PAGE else ""
    return shown, {
        "label": label,
        "previous": newer,
        "next": older,
        "note": "",
        "all_url": "",
        "files": exporting.links(request),
    }


def page_by_number(
    request: HttpRequest, rows: QuerySet[Any], column: str = "pk"
) -> tuple[list[Any], dict[str, Any]]:
    """`page_of` a list by a number, the highest first."""
    after = request.GET.get("after", "")
    if is_number(after):
        rows = rows.filter(**{f"{column}__lt": int(after)})
    return page_of(request, rows.order_by(f"-{column}"), attrgetter(column))


def page_by_moment(
    request: HttpRequest, rows: QuerySet[Any], column: str
) -> tuple[list[Any], dict[str, Any]]:
    """`page_of` a list by a moment and id, the newest first; rows without one come before all."""
    if place := read_place(request.GET.get("after", "")):
        at, pk = place
        rows = rows.filter(Q(**{f"{column}__lt": at}) | Q(**{column: at}, pk__lt=pk))

    def key(row: Any) -> str:
        return place_of(getattr(row, column) or timezone.now(), row.pk)

    return page_of(request, rows.order_by(f"-{column}", "-pk"), key)


def whole(request: HttpRequest, rows: Sized) -> dict[str, Any]:
    """What parts/pager.html needs of a list that is short enough for one page."""
    return {"label": f"{formatting.count(len(rows))} shown", "files": exporting.links(request)}


def place_of(moment: datetime, pk: int) -> str:
    """Where the next page of a list by moment and id starts; `read_place` reads it."""
    return f"{moment.isoformat()}_{pk}"


def read_place(text: str) -> tuple[datetime, int] | None:
    """None for what is no place of such a list."""
    moment, _, pk = text.rpartition("_")
    try:
        at = datetime.fromisoformat(moment.replace(" ", "+"))  # a plus sign that was not escaped
    except ValueError:
        return None
    return (at, int(pk)) if at.tzinfo and is_number(pk) else None


def counted(rows: QuerySet[Row]) -> str:
    return formatting.count(rows.order_by().values("pk")[: COUNT_MAX + 1].count(), COUNT_MAX)


def chips(
    request: HttpRequest, parameter: str, choices: Iterable[tuple[str, str]], current: str
) -> list[dict[str, Any]]:
    """The chips above a list that narrow it: (value, name) each; an empty value stands for all."""
    return [
        {
            "name": name,
            "url": f"{request.path}?{urlencode({parameter: value})}" if value else request.path,
            "current": value == current,
        }
        for value, name in choices
    ]


def named(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Values with their names as the facts of a page; what is empty is left out."""
    return [{"name": name, "value": value} for name, value in values.items() if value]


def _url(request: HttpRequest, after: str | None) -> str:
    query = {name: value for name, value in request.GET.items() if name != "after" and value}
    if after is not None:
        query["after"] = after
    return f"{request.path}?{urlencode(query)}" if query else request.path


# Long lists: what went as it should lies in folds, and an outline says what there is.

LONG_FROM = 12
"""A list of more steps than these is long."""
OPEN_ENDS = 3
"""So many at its beginning and at its end stay open."""
FOLDED_MIN = 3
"""A fold of fewer would spare nobody anything."""
TALLIED_MAX = 6

Item = dict[str, Any]


def folded(
    items: list[Item], is_quiet: Callable[[Item], bool], words: Callable[[Sequence[Item]], str]
) -> list[Item]:
    """The items; of a long list the first of each fold has `opens_fold`, what stands on it, and the
    last `closes_fold`. Only what `is_quiet` is folded, and nothing at either end.
    """
    if len(items) <= LONG_FROM:
        return items
    stretch: list[Item] = []
    inner = items[OPEN_ENDS : len(items) - OPEN_ENDS]
    for item in [*inner, None]:
        if item is not None and is_quiet(item):
            stretch.append(item)
            continue
        if len(stretch) >= FOLDED_MIN:
            stretch[0]["opens_fold"], stretch[-1]["closes_fold"] = words(stretch), True
        stretch = []
    return items


def tallied(names: Iterable[str]) -> str:
    """How often each occurs, the most frequent first: “30 × tickets.update, 6 × mail.read”."""
    found = Counter(names).most_common()
    told = [f"{formatting.count(number)} × {name}" for name, number in found[:TALLIED_MAX]]
    left = len(found) - TALLIED_MAX
    return ", ".join(told) + (f" and {left} more kinds" if left > 0 else "")


def private(answer: HttpResponse) -> HttpResponse:
    """Keep the address out of search engines and of other sites' logs.

    To ourselves the browser says where it comes from: without an origin no form would be taken.
    """
    answer["X-Robots-Tag"] = "noindex, nofollow"
    answer["Referrer-Policy"] = "same-origin"
    return answer


ZONE_COOKIE = "zone"
"""Written by static/js/moments.js."""

View = Callable[[HttpRequest], HttpResponseBase]


@cache
def zone_names() -> frozenset[str]:
    """Every zone that is known here."""
    return frozenset(available_timezones())


def zone_of_browser(request: HttpRequest) -> str:
    """The zone that the person's browser says it is in; empty where it says none that we know."""
    said = request.COOKIES.get(ZONE_COOKIE, "")
    return said if said in zone_names() else ""


def zone_of(request: HttpRequest) -> ZoneInfo:
    chosen = getattr(request.user, "timezone", "")
    return ZoneInfo(chosen or zone_of_browser(request) or "UTC")


def by_their_clock(answer: View) -> View:
    """Django middleware: pages of a workspace go by the clock of who reads them."""

    def answered(request: HttpRequest) -> HttpResponseBase:
        if not request.path.startswith("/w/") or not request.user.is_authenticated:
            return answer(request)
        with timezone.override(zone_of(request)):
            return answer(request)

    return answered


# The pages of affected people, who have no account.


def language_of(request: HttpRequest) -> str:
    """What the reader chose on the page, else what the browser asks for, else English."""
    chosen = request.GET.get("lang", "")
    if chosen in dict(settings.LANGUAGES):
        return chosen
    return translation.get_language_from_request(request)


def languages_offered() -> list[dict[str, Any]]:
    current = translation.get_language()
    return [
        {"code": code, "name": name, "url": f"?lang={code}", "current": code == current}
        for code, name in settings.LANGUAGES
    ]


def language_of_tag(tag: Any) -> str:
    """Which of the languages of these pages a tag means (BCP 47: `de-AT`); empty where none."""
    try:
        return translation.get_supported_language_variant(tag) if isinstance(tag, str) else ""
    except LookupError:
        return ""


def offer_of_languages() -> str:
    """For whoever reads of such a page in English, and may not: a line in each other language."""
    lines = []
    for code, _name in settings.LANGUAGES:
        if code != "en":
            with translation.override(code):
                lines.append(_("This page stands in English, too."))
    return "\n".join(lines)


def looking_up_once(answer: View) -> View:
    """Django middleware: a page of a workspace that only reads has its reader's rights, and what
    waits for them, as they were at one moment of it.
    """

    def answered(request: HttpRequest) -> HttpResponseBase:
        if request.method not in {"GET", "HEAD"} or not request.path.startswith("/w/"):
            return answer(request)
        with request_cache():
            return answer(request)

    return answered


# What a view or an operation answers that cannot be served: an RFC 9457 problem. In front of
# Django the same is `edge.asgi.Problem`.

CONTENT_TYPE = "application/problem+json"


def problem_response(status: int, title: str, detail: str = "", **more: Any) -> JsonResponse:
    """The answer; `more` are further members, of which its documentation tells."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    return JsonResponse(body, status=status, content_type=CONTENT_TYPE)
