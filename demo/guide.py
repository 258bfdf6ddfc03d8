"""The guide of the demo: whom one can be, and four steps from a failed trip to its finished trail.

Only a desk that runs with the demo has it, and only for a browser on the same machine: its buttons
type the demo's password for whoever presses them, to log in and to confirm that it is they.
"""

import ipaddress
import re
from typing import Any, NamedTuple

from allauth.account.forms import LoginForm
from django.contrib.auth import logout
from django.http import Http404, HttpRequest, HttpResponse
from django.http.request import split_domain_port
from django.shortcuts import redirect, render
from django.urls import path
from django.utils.functional import SimpleLazyObject
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_GET, require_POST

from demo import places
from demo.setting import skyline
from demo.stories import trip
from recovery.models import Case, CorrectionState, Plan, PlanState

FORWARDED = re.compile(r"HTTP_(X_FORWARDED|FORWARDED|X_REAL_IP|X_CLIENT_IP|TRUE_CLIENT|CF_|VIA)")
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
HIDDEN = "demo_guide_hidden"
OPERATOR, APPROVER = skyline.PEOPLE[2:4]
ADDRESSES = frozenset(address for address, *_ in skyline.PEOPLE)
TRAVELLER = "Amelia Davis"
ARRIVALS = "queue", "approvals", "corrections"


class Step(NamedTuple):
    """`person` is (address, name) of who takes it; `is_theirs`: that is who is logged in."""

    number: int
    words: str
    url: str
    person: tuple[str, str]
    is_done: bool
    is_current: bool
    is_theirs: bool


def context(request: HttpRequest) -> dict[str, Any]:
    """`demo` for templates: people, and where in its steps the story of the first trip is."""
    if not _is_here(request):
        return {}
    steps = SimpleLazyObject(lambda: _steps(request, request.path))
    told = {"people": skyline.PEOPLE, "first": OPERATOR[0], "steps": steps}
    return {"demo": told | {"password": SimpleLazyObject(lambda: _password(request))}}


def _password(request: HttpRequest) -> str:
    """What `make up` prints, if one of the demo's people is logged in, who has it still; or empty.

    Whoever came by one click was never told it, and a critical decision asks for it.
    """
    password, me = places.SharedFacts().read().get("password", ""), request.user
    is_of_demo = me.is_authenticated and me.email in ADDRESSES
    return password if is_of_demo and password and me.check_password(password) else ""


def _is_here(request: HttpRequest) -> bool:
    """Whether the browser runs on this machine. Without an address (a socket) it is not known.

    A proxy or a tunnel on this machine brings strangers from a loopback address: it is told by what
    it adds to the request, or by the name under which it is reached.
    """
    address = request.META.get("REMOTE_ADDR", "")
    if not address or any(map(FORWARDED.match, request.META)):
        return False
    name, _ = split_domain_port(request.META.get("HTTP_HOST", ""))  # a foreign one is an error page
    return ipaddress.ip_address(address).is_loopback and name in LOOPBACK_NAMES


def _steps(request: HttpRequest, at_path: str) -> list[Step]:
    """For somebody who looks at the page `at_path`.

    None where the guide is hidden, before the trip, on pages that no step leads to (but for the
    lists, where people arrive), and once the correction is published anywhere but on its own page,
    whose last step is to read it.
    """
    is_skyline = at_path.startswith(f"/w/{skyline.SLUG}/")
    if not (is_skyline and request.user.is_authenticated) or request.session.get(HIDDEN):
        return []
    trips = Case.objects.filter(
        workspace__slug=skyline.SLUG, agent__name=trip.AGENT, customer_name=TRAVELLER
    )
    case = trips.order_by("pk").first()
    if case is None:
        return []
    plan = case.plans.order_by("-number").first()
    correction = case.corrections.order_by("pk").first()
    home, first_name = f"/w/{skyline.SLUG}/", TRAVELLER.partition(" ")[0]
    at = f"{home}cases/{case.pk}/"
    page = f"{home}corrections/{correction.pk}/" if correction else at
    is_told = correction is not None and correction.state != CorrectionState.DRAFT
    if is_told and at_path != page:
        return []
    told = [
        (f"{first_name}’s trip failed: see what stands", at, OPERATOR),
        ("See what undoing does, and ask", f"{at}compensate/", OPERATOR),
        (
            "Approve the refund, as finance",
            f"{home}approvals/{plan.approval_id}/" if plan and plan.approval_id else at,
            APPROVER,
        ),
        (f"Read what {first_name} reads", f"{page}preview/", OPERATOR)
        if is_told
        else ("Publish the correction", page, OPERATOR),
    ]
    is_on_the_way = any(at_path.startswith(url.removesuffix("preview/")) for _, url, _ in told)
    if not is_on_the_way and at_path not in {f"{home}{name}/" for name in ARRIVALS}:
        return []
    now = 3 if correction else _current(plan, is_open=at_path.startswith(at))
    me = getattr(request.user, "email", "")
    return [
        Step(i + 1, words, url, (who[0], who[1]), i < now, i == now, who[0] == me)
        for i, (words, url, who) in enumerate(told)
    ]


def _current(plan: Plan | None, *, is_open: bool) -> int:
    """The place of the step that is next, until there is a correction to publish.

    `is_open`: the person looks at the case. While the plan runs, nothing is asked of anybody yet.
    """
    match plan.state if plan else None:
        case PlanState.WAITING | PlanState.STARTING | PlanState.RUNNING | PlanState.FINISHED:
            return 2
        case _:
            return int(is_open)


@require_POST
def enter(request: HttpRequest) -> HttpResponse:
    """Log in as one of the demo's people, with the password that `make up` prints."""
    asked = request.POST.get("person", "")
    if not _is_here(request) or asked not in ADDRESSES:
        raise Http404
    logout(request)
    password = places.SharedFacts().read().get("password", "")
    form = LoginForm({"login": asked, "password": password}, request=request)
    if not form.is_valid():
        return redirect("account_login")  # somebody has changed the password
    wanted = request.POST.get("next", "")
    is_ours = url_has_allowed_host_and_scheme(wanted, {request.get_host()})
    answer: HttpResponse = form.login(
        request, redirect_url=wanted if is_ours else f"/w/{skyline.SLUG}/queue/"
    )
    return answer


@require_GET
def guide(request: HttpRequest) -> HttpResponse:
    """The strip anew for the page `at`, or 204 while its story stands at `step`.

    An answer to an approval changes only its card, and a plan runs while somebody reads: the strip
    goes on by itself.
    """
    if not _is_here(request):
        raise Http404
    steps = _steps(request, request.GET.get("at", ""))
    now = next((step.number for step in steps if step.is_current), None)
    if now is None:
        return HttpResponse()
    if request.GET.get("step") == str(now):
        return HttpResponse(status=204)
    told = {"people": skyline.PEOPLE, "first": OPERATOR[0], "steps": steps}
    return render(request, "demo/start_here.html", {"demo": told, "at": request.GET["at"]})


@require_POST
def hide(request: HttpRequest) -> HttpResponse:
    request.session[HIDDEN] = True
    return redirect(f"/w/{skyline.SLUG}/queue/")


# Its addresses, for config/urls.py.

app_name = "demo"

urlpatterns = [
    path("demo/enter/", enter, name="enter"),
    path("demo/guide/", guide, name="guide"),
    path("demo/hide/", hide, name="hide"),
]
