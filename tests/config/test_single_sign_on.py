"""People come by their company's identity provider, and who leaves it is out at once."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from allauth.socialaccount.models import SocialToken

from approvals import grants, inbox
from approvals.models import Approval
from tests.approvals.door import Agent as Trip
from tests.approvals.test_waiting import IRREVERSIBLE
from tests.config.test_worker import soon
from tests.people import acme, ada, leads, operators
from tests.ports import free_port
from tests.processes import Processes, answers
from workspaces import keys
from workspaces.models import Agent, User

__all__ = ["acme", "ada", "leads", "operators"]
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
    kept = SocialToken.objects.get()
    assert kept.token == ""
    assert kept.token_secret.startswith("gAAAA"), "sealed, as Fernet does it"

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
