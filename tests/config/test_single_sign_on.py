"""People come by their company's identity provider, and who leaves it is out at once."""

import contextlib
import re
import socketserver
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import requests
from allauth.socialaccount.models import SocialToken
from django.db import connection
from django.test import Client

from approvals import grants, inbox
from approvals.models import Approval
from config.providers import guarded_session
from ledger import desk_events
from ledger.models import Event
from tests.approvals.door import Agent as Trip
from tests.approvals.test_waiting import IRREVERSIBLE
from tests.config.test_worker import soon
from tests.people import acme, ada, globex, leads, operators, person, team
from tests.ports import free_port
from tests.processes import Processes, answers
from workspaces import encryption, entrance, independence, keys, teams
from workspaces.models import Agent, LoginProvider, Secret, User, Workspace

__all__ = ["acme", "ada", "globex", "leads", "operators"]
pytestmark = pytest.mark.django_db(transaction=True)
CLAIMS = {"email": "cleo@example.com", "email_verified": True, "name": "Cleo"}


SERVER = """
import sys, oidc_provider_mock
oidc_provider_mock.app().run("localhost", int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def provider(kept_processes: Processes) -> str:
    port = free_port()
    url = f"http://localhost:{port}"
    command = [sys.executable, "-W", "ignore", "-c", SERVER, str(port)]
    server = kept_processes.run("provider", command)
    server.wait_until(lambda: answers(f"{url}/.well-known/openid-configuration"))
    return url


@pytest.fixture
def browsers() -> Iterator[Callable[[], httpx.Client]]:
    """New ones, each with its own cookies."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(
            httpx.Client(follow_redirects=True, timeout=60, trust_env=False)
        )


@pytest.fixture
def environment(provider: str) -> dict[str, str]:
    return {
        "AMENDS_OIDC_URL": provider, "AMENDS_OIDC_CLIENT_ID": "desk", "AMENDS_OIDC_SECRET": "known",
        "AMENDS_OIDC_NAME": "Acme’s directory", "AMENDS_OIDC_LOOK_SECONDS": "1",
        "AMENDS_OIDC_SCOPES": "openid profile email",
        "AMENDS_OIDC_TEAMS": "deciders=acme/leads, on-call=acme/operators",
    }  # fmt: skip


@pytest.fixture
def desk(
    processes: Processes, environment: dict[str, str], acme: Any, leads: Any, operators: Any
) -> str:
    return processes.kept_web(**environment).url


def tells(provider: str, who: str, **claims: Any) -> None:
    httpx.put(f"{provider}/users/{who}", json=CLAIMS | claims).raise_for_status()


def logs_in(browser: httpx.Client, desk: str, who: str) -> httpx.Response:
    """From the desk's own page, by its link, through the provider's form, and back."""
    page = browser.get(f"{desk}/accounts/login/")
    assert "Log in with Acme’s directory" in page.text
    form = browser.get(f"{desk}/accounts/oidc/company/login/?process=login")
    return browser.post(form.url, data={"sub": who})


def teams_of(email: str) -> set[str]:
    return set(User.objects.get(email=email).groups.values_list("team__name", flat=True))


def test_who_stands_in_a_group_stands_in_its_team_and_who_leaves_in_none(
    desk: str, provider: str, browsers: Callable[[], httpx.Client], acme: Any, ada: Any,
    processes: Processes, environment: dict[str, str],
) -> None:  # fmt: skip
    processes.scheduler(**environment)
    tells(provider, "cleo", groups=["deciders", "football"])
    page = logs_in(browser := browsers(), desk, "cleo")
    assert (page.status_code, page.url.path) == (200, "/w/acme/queue/")
    cleo = User.objects.get(email="cleo@example.com")
    assert (cleo.name, teams_of(cleo.email), cleo.has_usable_password()) == (
        "Cleo", {"leads"}, False,
    )  # fmt: skip
    members = browser.get(f"{desk}/w/acme/settings/members/").text
    assert "deciders=acme/leads" in members
    assert "known" not in members
    logs_in(browsers(), desk, "cleo")
    kept = SocialToken.objects.get()
    assert kept.token == ""
    assert kept.token_secret.startswith("gAAAA"), "sealed, as Fernet does it, at each log-in"

    agent = Agent.objects.create(workspace=acme, name="trip-agent", owner=ada)
    Trip(keys.create_key(agent, by=None, name="test")[1]).begin(**IRREVERSIBLE)
    approval = Approval.objects.get()
    inbox.grant(approval, by=cleo, seen=approval.digest)
    approval.refresh_from_db()
    assert (approval.state, grants.still_entitled(approval)) == ("granted", True)

    tells(provider, "cleo", groups=["deciders", "on-call"])
    assert soon(lambda: teams_of(cleo.email) == {"leads", "operators"})

    httpx.post(f"{provider}/users/cleo/revoke-tokens").raise_for_status()
    assert soon(lambda: not teams_of(cleo.email))
    assert soon(lambda: browser.get(f"{desk}/").url.path == "/accounts/login/")
    approval.refresh_from_db()
    assert not grants.still_entitled(approval), "what she said yes to does not run"


def test_nobody_else_gets_in(
    desk: str, provider: str, browsers: Callable[[], httpx.Client]
) -> None:
    tells(provider, "dev", email="dev@example.com", groups=["football"])
    tells(provider, "eve", email="ada@example.com", email_verified=False, groups=["deciders"])

    for who, why in (("dev", "None of your groups"), ("eve", "does not vouch")):
        page = logs_in(browsers(), desk, who)
        assert page.status_code == 403
        assert why in page.text
    assert not User.objects.filter(email="dev@example.com").exists()


def test_who_was_invited_is_the_same_person_there(
    desk: str, provider: str, browsers: Callable[[], httpx.Client], ada: Any
) -> None:
    """Ada operates, by an administrator's word; her groups say otherwise, and they decide."""
    tells(provider, "ada", email=ada.email, groups=["deciders"])
    page = logs_in(browsers(), desk, "ada")

    assert page.status_code == 200
    assert User.objects.count() == 1
    assert teams_of(ada.email) == {"leads"}


# As an administrator sets it, for their workspace alone.

PAGE = "/w/acme/settings/log-in/"


@pytest.fixture
def ann(acme: Workspace) -> User:
    found = person("ann", team(acme, "administrators", "view", "administer"))
    found.set_password("correct horse")
    found.save()
    return found


@pytest.fixture
def said(provider: str, settings: Any) -> dict[str, str]:
    """What the form is filled in with; the provider is on this machine, which has to be named."""
    settings.OUTBOUND_ALLOW = [provider.removeprefix("http://")]
    return {
        "name": "Acme’s directory", "issuer": f"{provider}/", "client_id": "desk",
        "secret": "a well-kept word", "groups_claim": "groups",
        "groups": "deciders = leads\n\non-call = operators", "domains": "example.com",
    }  # fmt: skip


def looked_at(client: Client, said: dict[str, str]) -> dict[str, str]:
    """The form as the page gives it now, filled in with this."""
    return said | seen_on(client.get(PAGE).content.decode())


def seen_on(page: str) -> dict[str, str]:
    """What a form of this page says that its reader has seen."""
    field = re.search(r'<input[^>]*name="seen"[^>]*>', page)
    assert field is not None
    seen = re.search(r'value="([^"]*)"', field[0])
    return {"seen": seen[1] if seen else ""}


def csrf_of(page: str) -> str:
    field = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert field is not None
    return field[1]


def chooses_and_logs_in(browser: httpx.Client, page: httpx.Response, email: str) -> httpx.Response:
    own = {"login": email, "password": "a long enough secret"}
    page = browser.post(page.url, data=own | {"csrfmiddlewaretoken": csrf_of(page.text)})
    assert page.url.path == "/accounts/login/", "choosing it logs nobody in"
    assert "Your password is set" in page.text
    there = {"next": page.url.params["next"], "csrfmiddlewaretoken": csrf_of(page.text)}
    return browser.post(page.url, data=own | there)


def says_again_who_she_is(client: Client, ann: User) -> None:
    client.force_login(ann)
    client.post("/accounts/reauthenticate/", {"password": "correct horse"})


def test_an_administrator_sets_the_provider_and_its_secret_is_not_shown_again(
    client: Client, ann: User, acme: Workspace, leads: Any, operators: Any, said: dict[str, str],
    settings: Any,
) -> None:  # fmt: skip
    client.force_login(ann)
    page = client.get(PAGE).content.decode()
    assert "Confirm that it is you" in page
    assert "Empty: it stays as it is." not in page, "nothing is there that could stay"
    assert client.post(f"{PAGE}save/", said).status_code == 422, "her log-in is not fresh"
    says_again_who_she_is(client, ann)
    wrong = client.post(f"{PAGE}save/", said | {"groups": "deciders = bosses"})
    assert "There is no team “bosses” here. Members and teams is" in wrong.content.decode()
    assert not LoginProvider.objects.exists()
    tried = client.post(f"{PAGE}try/", said).content.decode()
    assert "It answers as a provider." in tried
    assert "a well-kept word" not in tried

    assert client.post(f"{PAGE}save/", said).status_code == 302
    first = LoginProvider.objects.get()
    assert "a well-kept word" not in bytes(Secret.objects.get().sealed).decode()
    shown = client.get(PAGE).content.decode()
    assert f"/accounts/oidc/{first.provider_id}/login/callback/" in shown
    assert "a well-kept word" not in shown
    assert "Empty: it stays as it is." in shown
    again = looked_at(client, said | {"secret": "", "domains": ""})
    assert client.post(f"{PAGE}save/", again).status_code == 302
    assert encryption.open_sealed(bytes(Secret.objects.get().sealed)).count("a well-kept word")
    elsewhere = looked_at(client, said | {"issuer": "https://login.example.com", "secret": ""})
    other = client.post(f"{PAGE}save/", elsewhere)
    assert "Enter the secret that this issuer" in other.content.decode(), "it is not told to others"
    assert client.post(f"{PAGE}save/", elsewhere | {"secret": "new"}).status_code == 302
    second = LoginProvider.objects.get(ended_at=None)
    assert second.provider_id != first.provider_id, "no other issuer speaks of its people"
    client.post(f"{PAGE}end/")
    assert not LoginProvider.objects.filter(ended_at=None).exists()
    assert not Secret.objects.exists()

    desk_events.take_in()
    events = Event.objects.filter(type="workspace.changed").order_by("place")
    told = list(events.values_list("data", flat=True))
    assert len(told) == 4
    assert all(one["issuer"].startswith("http") for one in told[:3])
    assert "a well-kept word" not in str(told)
    settings.OIDC_URL = "https://desk.example.com"
    told_so = client.get(PAGE).content.decode()
    assert "Set where the desk is run" in told_so
    assert "https://desk.example.com" in told_so


def test_of_two_who_set_it_at_once_the_second_is_told_what_the_first_set(
    client: Client, ann: User, acme: Workspace, leads: Any, operators: Any, said: dict[str, str],
) -> None:  # fmt: skip
    says_again_who_she_is(client, ann)
    ben, others = person("ben", acme.teams.get(name="administrators")), Client()
    ben.set_password("correct horse")
    ben.save()
    says_again_who_she_is(others, ben)
    forms = [(one, looked_at(one, said | {"issuer": f"https://{name}.example.com", "name": name}))
             for one, name in ((client, "first"), (others, "second"))]  # fmt: skip

    def answered(of: tuple[Client, dict[str, str]]) -> tuple[int, str]:
        try:
            page = of[0].post(f"{PAGE}save/", of[1])
            return page.status_code, page.content.decode()
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as threads:
        pages = sorted(threads.map(answered, forms))

    assert [status for status, _ in pages] == [302, 422]
    kept = LoginProvider.objects.get()
    assert f"set “{kept.name}” ({kept.issuer}) meanwhile. Save once more" in pages[1][1]
    later, theirs = forms[1] if kept.name == "first" else forms[0]
    assert later.post(f"{PAGE}save/", theirs | seen_on(pages[1][1])).status_code == 302
    assert LoginProvider.objects.filter(ended_at=None).count() == 1


@pytest.mark.parametrize(("issuer", "why"), [
    ("http://169.254.169.254/latest", "is not https, nor named"),
    ("https://169.254.169.254/latest", "is not a public address"),
    ("https://localhost:1", "is not a public address"),
    ("{provider}/nowhere", "does not answer as a provider"),
])  # fmt: skip
def test_what_is_tried_is_reached_as_a_connectors_system_is(
    client: Client, ann: User, leads: Any, operators: Any, said: dict[str, str], provider: str,
    issuer: str, why: str,
) -> None:  # fmt: skip
    client.force_login(ann)
    page = client.post(f"{PAGE}try/", said | {"issuer": issuer.format(provider=provider)})

    assert page.status_code == 422
    assert why in page.content.decode()


def test_a_token_that_no_header_can_hold_is_a_provider_that_cannot_be_asked(settings: Any) -> None:
    """It is what the provider gave: nobody is logged in, and no page fails."""
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as listening:
        port = listening.server_address[1]
        settings.OUTBOUND_ALLOW = [f"127.0.0.1:{port}"]
        with pytest.raises(requests.ConnectionError), guarded_session() as session:
            session.get(f"http://127.0.0.1:{port}/userinfo", headers={"authorization": "Bearer x "})


def test_people_come_by_it_into_its_workspace_alone_and_leave_it(
    client: Client, ann: User, acme: Workspace, globex: Workspace, leads: Any, operators: Any,
    said: dict[str, str], provider: str, processes: Processes,
    browsers: Callable[[], httpx.Client], ada: User,
) -> None:  # fmt: skip
    says_again_who_she_is(client, ann)
    client.post(f"{PAGE}save/", said)
    where = {"AMENDS_OUTBOUND_ALLOW": said["issuer"].rstrip("/").removeprefix("http://"),
             "AMENDS_OIDC_LOOK_SECONDS": "1", "AMENDS_OIDC_SCOPES": "openid profile email",
             "EMAIL_HOST": "localhost", "EMAIL_PORT": "9"}  # fmt: skip
    desk = processes.kept_web(**where).url
    door = f"{desk}/accounts/oidc/{LoginProvider.objects.get().provider_id}/login/"

    def comes(who: str, process: str = "login") -> httpx.Response:
        form = browsers_own.get(f"{door}?process={process}")
        return browsers_own.post(form.url, data={"sub": who})

    tells(provider, "cleo", groups=["deciders"])
    browsers_own = browsers()
    assert "Acme’s directory" not in browsers_own.get(f"{desk}/accounts/login/").text
    page = comes("cleo")
    assert (page.status_code, page.url.path) == (200, "/w/acme/queue/")
    cleo, hers = User.objects.get(email="cleo@example.com"), browsers_own
    assert teams_of(cleo.email) == {"leads"}
    assert not independence.is_proven(cleo), "a workspace's own provider proves no address"
    [newcomer] = independence.newcomers([cleo.pk], [ann.pk], acme)
    assert newcomer.brought_in_by == "was brought in by Ann", "so the two are not two"

    refused: dict[str, tuple[dict[str, Any], str]] = {
        "eve": ({"email": "eve@elsewhere.org"}, "takes nobody with an address like yours"),
        "ada": ({"email": ada.email}, "There is an account with your address here"),
        "dev": ({"email": "dev@example.com", "groups": ["football"]}, "None of your groups"),
    }
    for who, (claims, why) in refused.items():
        tells(provider, who, **({"groups": ["deciders"]} | claims))
        browsers_own = browsers()
        page = comes(who)
        assert (page.status_code, why in page.text) == (403, True), (who, page.text)

    assert hers.get(f"{desk}/w/acme/queue/").url.path == "/w/acme/queue/"
    teams.add(team(globex, "leads", "view"), cleo, by=None)
    assert hers.get(f"{desk}/w/globex/queue/").url.path == "/accounts/login/"
    browsers_own = browsers()
    assert "log in with your password" in comes("cleo").text
    boss = person("boss", team(globex, "bosses", "view", "administer"))
    link = f"{desk}/join/{entrance.invite(globex, cleo.email, [], by=boss)}/"
    assert "you then choose one" in browsers_own.get(link).text
    page = comes("cleo")
    assert str(page.url) == link, "what both gave her together opens what neither does"
    page = chooses_and_logs_in(browsers_own, page, cleo.email)
    assert page.url.path == "/w/globex/queue/"
    browsers_own = browsers()
    assert "log in with your password" in comes("cleo").text
    assert SocialToken.objects.get().token_secret.startswith("gAAAA")

    processes.scheduler(**where)
    httpx.post(f"{provider}/users/cleo/revoke-tokens").raise_for_status()
    here = acme.teams.values_list("group", flat=True)
    assert soon(lambda: not cleo.groups.filter(pk__in=here).exists())
    assert teams_of(cleo.email) == {"leads"}, "what it says is of its workspace alone"
