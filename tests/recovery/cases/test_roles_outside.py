"""Who may ask for what outside of a workspace: by the address, by a link, or by a key.

The walk goes over the URL configuration itself: a new address without an entry in FOR fails. It is
asked for as nobody, as Dev of another workspace and as Ada; and with a link as whoever holds it.
"""

import pytest
from django.db import transaction
from django.test import Client
from django.urls import URLResolver, get_resolver

from approvals import consent_requests, notifications
from approvals.models import Approval
from recovery import corrections
from recovery.corrections import contesting
from recovery.models import Correction
from tests.people import logged_in, team
from tests.recovery.cases import test_disclosure
from tests.recovery.cases.test_disclosure import V1, W
from tests.recovery.cases.test_lists import WEIGHT_BYTES_MAX, weight_of
from workspaces import client_packages, entrance

pytestmark = pytest.mark.django_db
finance, known = test_disclosure.finance, test_disclosure.known

# For whom the answer to GET and to POST is, or None where the method is not served:
#   everybody  the same answer, whoever asks
#   own        nobody is sent to log in; everybody else has the page of their own account
#   entrance   for who is not logged in; who is, is led home
#   started    in the middle of a log-in by a company's provider alone
#   link       the same for whoever holds the link, logged in or not; without, nothing is there
#   invited    the same, but who is logged in by another address is told so
#   key        a person's token or an agent's key: a session opens nothing
FOR: tuple[tuple[tuple[str | None, str | None], tuple[str, ...]], ...] = (
    (("own", None), (
        "", "accounts/2fa/", "accounts/2fa/recovery-codes/", "accounts/2fa/webauthn/",
    )),
    (("own", "own"), (
        "address/", "accounts/logout/", "accounts/reauthenticate/", "accounts/email/",
        "accounts/sessions/", "accounts/3rdparty/", "accounts/password/change/",
        "accounts/password/set/", "accounts/2fa/reauthenticate/", "accounts/2fa/totp/activate/",
        "accounts/2fa/totp/deactivate/", "accounts/2fa/recovery-codes/generate/",
        "accounts/2fa/recovery-codes/download/", "accounts/2fa/webauthn/add/",
        "accounts/2fa/webauthn/reauthenticate/", "accounts/2fa/webauthn/keys/<int:pk>/remove/",
        "accounts/2fa/webauthn/keys/<int:pk>/edit/",
    )),
    (("entrance", "entrance"), (
        "accounts/login/", "accounts/signup/", "accounts/login/code/confirm/",
        "accounts/2fa/authenticate/",
    )),
    (("started", "started"), ("accounts/3rdparty/signup/",)),
    (("everybody", "everybody"), (
        "accounts/password/reset/",
        r"accounts/^password/reset/key/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)/$",
        r"accounts/^confirm-email/(?P<key>[-:\w]+)/$", "api/docs", f"{V1}openapi.json",
        f"{V1}docs", f"{V1}", f"{V1}<path:rest>", "accounts/social/login/cancelled/",
        "accounts/social/login/error/",
        "accounts/social/signup/", "accounts/social/connections/",
        "accounts/oidc/^(?P<provider_id>[^/]+)/login/",
        "accounts/oidc/^(?P<provider_id>[^/]+)/login/callback/",
    )),
    (("everybody", None), (
        "accounts/inactive/", "accounts/confirm-email/", "accounts/password/reset/key/done/",
        "accounts/password/reset/done/", "accounts/3rdparty/login/cancelled/",
        "accounts/3rdparty/login/error/", "demo/guide/", "verifier.html",
        f"client/{client_packages.wheel.name}", f"client/{client_packages.tarball.name}",
    )),
    ((None, "everybody"), ("demo/enter/", "demo/hide/")),
    (("link", "link"), (
        "setup/<str:token>/", "ask/<str:token>/", "summary/stop/<str:token>/",
        "c/<str:token>/report/",
    )),
    (("link", None), (
        "c/<str:token>/", "c/<str:token>/record.json", "c/<str:token>/verify/",
        "c/<str:token>/contested/<str:receipt>/",
    )),
    (("invited", "invited"), ("join/<str:token>/",)),
    (("key", "key"), ("scim/v2/<slug:workspace>/<path:rest>",)),
)  # fmt: skip
BY_ROUTE = {route: words for words, found in FOR for route in found}
PATHS = {
    r"accounts/^password/reset/key/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)/$":
        "accounts/password/reset/key/1-x/",
    r"accounts/^confirm-email/(?P<key>[-:\w]+)/$": "accounts/confirm-email/nothing/",
    "accounts/oidc/^(?P<provider_id>[^/]+)/login/": "accounts/oidc/nothing/login/",
    "accounts/oidc/^(?P<provider_id>[^/]+)/login/callback/":
        "accounts/oidc/nothing/login/callback/",
    "scim/v2/<slug:workspace>/<path:rest>": "scim/v2/acme/Users",
}  # fmt: skip
LOG_IN = "/accounts/login/"
REFUSED = {401, 403, 404, 405, 410}


def outside(patterns=None, before=""):
    """Every address that is in no workspace; those of the API have a word for all of them."""
    for one in get_resolver().url_patterns if patterns is None else patterns:
        route = before + str(one.pattern)
        if isinstance(one, URLResolver):
            yield from outside(one.url_patterns, route)
        elif not route.startswith((W, "^w/")):
            yield route


def words_of(route):
    return BY_ROUTE.get(route) or (("key", "key") if route.startswith(V1) else None)


@pytest.fixture
def links(known, acme, ada):
    """A link of each kind that is out there, by the beginning of its address."""
    drafted = Correction.objects.get(pk=known["correction"])
    told = corrections.publish(drafted, by=ada, seen=drafted.revision, ways=["link"])
    contest = contesting.contest(told, ground="other", text="It still says high")
    approval = Approval.objects.get(pk=known["approval"])
    eve = consent_requests.affected([{"id": "eve", "name": "Eve"}])
    [asked] = consent_requests.ask(approval, eve, "Do you want it?")
    found = {
        "setup": entrance.setup_link(),
        "join": entrance.invite(acme, "gil@x.example", [team(acme, "guests", "view")], by=ada),
        "ask": consent_requests.link_of(asked).split("/")[-2],
        "summary/stop": notifications.stop_token(acme, ada),
        "c": corrections.link_of(told).split("/")[-2],
    }
    return found, contest.receipt


@pytest.fixture
def answers(known, links, dev, ada):
    """What is answered to nobody, to Dev and to Ada, with nothing of it done."""
    _, receipt = links

    def ask(route, post, token="nothing"):
        path = PATHS.get(route, route).replace("<str:token>", token)
        path = path.replace("<str:receipt>", receipt)
        for part in ("<int:pk>", "<pk>", "<int:number>"):
            path = path.replace(part, "1")
        found = []
        for who in (Client(), logged_in(dev), logged_in(ada)):
            with transaction.atomic():
                found.append(who.post(f"/{path}") if post else who.get(f"/{path}"))
                transaction.set_rollback(True)
        assert not [one for one in found if one.status_code >= 500], path
        return found

    return ask


def met(word, found):
    """Whether nobody, Dev and Ada were answered as it stands in FOR."""
    codes = [one.status_code for one in found]
    nobodys, *others = ways = [one.get("Location", "").partition("?")[0] for one in found]
    is_one = len(set(zip(codes, ways, strict=True))) == 1
    return {
        None: set(codes[1:]) == {405} and (codes[0] == 405 or nobodys == LOG_IN),
        "everybody": is_one and nobodys != LOG_IN,
        "own": nobodys in {LOG_IN, "/"} and not {401, 403} & set(codes) and LOG_IN not in others,
        "entrance": (codes[0] == 200 or nobodys == LOG_IN) and others == ["/", "/"],
        "started": is_one and nobodys == LOG_IN,
        "link": is_one and not nobodys and not REFUSED & set(codes),
        "invited": codes == [200, 409, 409],
        "key": set(codes) <= {401, 405},
    }[word]


def test_every_address_outside_of_a_workspace_says_for_whom_it_is():
    found = set(outside())

    assert {one for one in found if not words_of(one)} == set(), "say in FOR whom these are for"
    assert set(BY_ROUTE) - found == set()


def test_each_answers_those_that_it_is_for_and_nobody_else(answers, links):
    tokens, _ = links
    wrong = {}
    for route in outside():
        token = tokens.get(route.partition("/<str:token>")[0], "")
        for post, word in enumerate(words_of(route)):
            found = answers(route, post, token)
            if not met(word, found):
                said = [(one.status_code, one.get("Location", "")) for one in found]
                wrong[f"{'POST' if post else 'GET'} {route}"] = (word, said)

    assert wrong == {}


def test_no_page_outside_of_a_workspace_is_heavier_than_a_slow_line_bears(answers, links):
    tokens, _ = links
    weights = {}
    for route in outside():
        token = tokens.get(route.partition("/<str:token>")[0], "")
        nobodys, _, adas = answers(route, post=False, token=token)
        pages = [one for one in (nobodys, adas) if one.status_code == 200]
        texts = {one.text for one in pages if one["Content-Type"].startswith("text/html")}
        if texts:
            weights[route] = max(map(weight_of, texts))

    assert {one: weight for one, weight in weights.items() if weight > WEIGHT_BYTES_MAX} == {}
    assert {
        "c/<str:token>/", "ask/<str:token>/", "setup/<str:token>/", "join/<str:token>/",
        "accounts/login/", "accounts/email/", "accounts/2fa/", "address/",
    } <= set(weights)  # fmt: skip


def test_a_link_opens_its_own_page_and_no_other(answers, links):
    tokens, _ = links
    wrong = {}
    for route in [one for one in outside() if "<str:token>" in one]:
        others = {kind: one for kind, one in tokens.items() if not route.startswith(f"{kind}/<")}
        for kind, token in {"made up": "nothing", **others}.items():
            for post in (False, True):
                codes = {one.status_code for one in answers(route, post, token)}
                if len(codes) != 1 or not codes <= {404, 405, 410}:
                    wrong[f"{route} with one of {kind}"] = codes

    assert wrong == {}
