"""Whoever made an account under somebody's address keeps no way into it for when they have come."""

import re
from typing import Any

import pytest
from allauth.account.internal.flows.login import record_authentication
from allauth.account.models import EmailAddress
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.models import SocialAccount, SocialLogin
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.backends.db import SessionStore
from django.core import mail
from django.test import Client, RequestFactory

from config.providers import COMPANY
from config.single_sign_on import CompanyAccountAdapter
from tests import people
from workspaces import entrance, independence, teams
from workspaces.models import LoginProvider, Team, User, Workspace
from workspaces.views import entrance as views

pytestmark = pytest.mark.django_db
acme, globex = people.acme, people.globex
PASSWORD = "a long enough secret"


@pytest.fixture
def taken_up(globex: Workspace) -> Client:
    """An administrator of globex invites Cleo, and takes up the link herself: her page shows it."""
    boss = people.person("boss", people.team(globex, "bosses", "view", "administer"))
    link = entrance.invite(globex, "cleo@example.com", Team.objects.all(), by=boss)
    stranger = Client()
    stranger.post(f"/join/{link}/", {"name": "Cleo", "password": PASSWORD})
    mail.outbox.clear()
    return stranger


def test_no_address_of_a_stranger_opens_an_account_that_is_later_its_owners(
    taken_up: Client, acme: Workspace
) -> None:
    """With another address of hers, she had herself mailed a new password after Cleo had come."""
    taken_up.post("/accounts/reauthenticate/", {"password": PASSWORD})
    page = taken_up.post("/accounts/email/", {"email": "eve@example.net", "action_add": "1"})

    assert "Prove first that the address is yours" in page.text
    assert not EmailAddress.objects.filter(email="eve@example.net").exists()
    cleo = User.objects.get(email="cleo@example.com")
    independence.prove(cleo)
    taken_up.post("/accounts/email/", {"email": "cleo@example.net", "action_add": "1"})
    [proof] = mail.outbox
    assert proof.to == ["cleo@example.net"]
    assert re.search(r"/accounts/confirm-email/\S+", str(proof.body))


def test_no_log_in_of_a_strangers_company_is_connected_to_it(
    taken_up: Client, settings: Any
) -> None:
    settings.OIDC_URL = "https://login.example.com"
    cleo = User.objects.get(email="cleo@example.com")

    def refused() -> str:
        request = RequestFactory().get("/accounts/oidc/company/login/callback/")
        request.user, request.session = cleo, SessionStore()
        known = SocialAccount(provider=COMPANY, uid="eve", extra_data={})
        proven = EmailAddress(email="eve@example.com", verified=True)
        came = SocialLogin(user=User(), account=known, email_addresses=[proven])
        came.state = {"process": "connect"}
        with pytest.raises(ImmediateHttpResponse) as page:
            CompanyAccountAdapter(request).pre_social_login(request, came)
        return str(page.value.response.text)

    assert "Prove first that the address of your account is yours" in refused()
    independence.prove(cleo)
    assert "None of your groups has a team here" in refused()


@pytest.fixture
def cleo(acme: Workspace) -> User:
    """The log-in that an administrator of acme has set lets her in, and nothing else does."""
    ann = people.person("ann", people.team(acme, "leads", "view", "administer"))
    row = LoginProvider.objects.create(workspace=acme, name="Acme", issuer="https://x", set_by=ann)
    cleo = people.person("cleo", people.team(acme, "operators", "view"))
    cleo.set_unusable_password()
    cleo.save()
    SocialAccount.objects.create(user=cleo, provider=row.provider_id, uid="cleo")
    return cleo


@pytest.fixture
def boss(globex: Workspace) -> User:
    return people.person("boss", people.team(globex, "bosses", "view", "administer"))


def test_whom_one_companys_log_in_lets_in_joins_another_with_a_password_of_their_own(
    cleo: User, boss: User, globex: Workspace
) -> None:
    """Joined without one they were logged out, and no page led them in again."""
    into = [people.team(globex, "guests", "view")]
    link = f"/join/{entrance.invite(globex, cleo.email, into, by=boss)}/"
    browser = Client()
    browser.force_login(cleo)

    assert "choose a password" in browser.get(link).text
    assert "too short" in browser.post(link, {"password": "short"}).text
    assert not cleo.groups.filter(team__workspace=globex).exists()
    browser.post(link, {"password": PASSWORD})

    assert browser.get("/w/globex/queue/").status_code == 200, "she stays logged in"
    again = Client()
    again.post("/accounts/login/", {"login": cleo.email, "password": PASSWORD})
    assert again.get("/w/acme/queue/").status_code == 200


def comes_by(browser: Client, cleo: User) -> str:
    """Her company's log-in comes back in this browser; where the desk leads it."""
    known = SocialAccount.objects.get(user=cleo)
    request = RequestFactory().get(f"/accounts/oidc/{known.provider}/login/callback/")
    request.user, request.session = AnonymousUser(), browser.session
    named = EmailAddress(email=cleo.email, verified=True)
    came = SocialLogin(user=cleo, account=known, email_addresses=[named])
    came.state = {"process": "login"}
    with pytest.raises(ImmediateHttpResponse) as page:
        CompanyAccountAdapter(request).pre_social_login(request, came)
    request.session.save()
    return str(page.value.response.headers.get("location", ""))


def test_whom_their_company_names_may_choose_a_password_with_the_link_and_do_nothing_else(
    cleo: User, boss: User, globex: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It logged them in, again and again, and nobody held them to the page of the link."""
    teams.add(people.team(globex, "guests", "view"), cleo, by=boss)
    third = Workspace.objects.create(slug="initech", name="Initech")
    bill = people.person("bill", people.team(third, "bosses", "view", "administer"))
    other = f"/join/{entrance.invite(third, cleo.email, [], by=bill)}/"
    link = f"/join/{entrance.invite(globex, cleo.email, [], by=boss)}/"
    browser = Client()
    assert browser.get(link).headers["location"].startswith("/accounts/login/")

    assert comes_by(browser, cleo) == link
    for elsewhere in ("/w/globex/queue/", "/w/acme/queue/"):
        assert browser.get(elsewhere).headers["location"].startswith("/accounts/login/")
    assert browser.get(other).headers["location"].startswith("/accounts/login/")
    assert "choose a password" in browser.get(link).text
    with monkeypatch.context() as later:
        later.setattr(views, "NAMED_SECONDS", -1)
        answer = browser.post(link, {"password": PASSWORD})
        assert answer.headers["location"].startswith("/accounts/login/")
    cleo.refresh_from_db()
    assert not cleo.has_usable_password(), "it was too late"
    comes_by(browser, cleo)
    page = browser.post(link, {"password": PASSWORD}, follow=True)

    assert page.redirect_chain[-1][0] == "/accounts/login/?next=/w/globex/queue/"
    assert "Your password is set. Log in with it." in page.text
    browser.post("/accounts/login/", {"login": cleo.email, "password": PASSWORD})
    assert browser.get("/w/globex/queue/").status_code == 200
    assert browser.get(link).status_code == 410


def test_the_link_of_whom_another_companys_log_in_lets_in_is_not_mailed(
    cleo: User, boss: User, globex: Workspace
) -> None:
    """Her company may read her mail: it had both, its own log-in and the other's link."""
    browser = Client()
    browser.force_login(boss)

    form = {"teams": [Team.objects.get(workspace=globex).pk]}

    page = browser.post("/w/globex/settings/members/invite/", form | {"email": cleo.email})

    assert "so the link was not mailed" in page.text
    assert "/join/" in page.text
    assert mail.outbox == []
    browser.post("/w/globex/settings/members/invite/", form | {"email": "dev@example.com"})
    assert [one.to for one in mail.outbox] == [["dev@example.com"]]


def test_an_invitation_alone_opens_no_account_that_is_there(acme: Workspace) -> None:
    """Its administrator sees the link, and may be nobody to whom the account belongs."""
    boss = people.person("boss", people.team(acme, "bosses", "view", "administer"))
    cleo = people.person("cleo")
    link = f"/join/{entrance.invite(acme, cleo.email, [], by=boss)}/"

    answer = Client().post(link, {"password": PASSWORD})

    assert answer.headers["location"].startswith("/accounts/login/")
    cleo.refresh_from_db()
    assert not cleo.check_password(PASSWORD)


SET_UP = "/accounts/password/set/"
CHOSEN = {"password1": PASSWORD, "password2": PASSWORD}


def test_a_session_alone_gives_an_account_without_a_password_no_way_in(cleo: User) -> None:
    """Whoever took one chose a password, or had a new address proven, and had the account."""
    taken = Client()
    taken.force_login(cleo)

    for path, form in (
        (SET_UP, CHOSEN),
        ("/accounts/email/", {"email": "eve@example.com", "action_add": ""}),
        ("/accounts/2fa/totp/activate/", {"code": "123456"}),
    ):
        assert "log in again, and come back" in taken.post(path, form, follow=True).text
    connecting = taken.post("/accounts/oidc/company/login/", {"process": "connect"})
    assert connecting.headers["location"] == "/accounts/2fa/"
    cleo.refresh_from_db()
    assert not cleo.has_usable_password()
    assert not EmailAddress.objects.filter(email="eve@example.com").exists()
    assert taken.get("/accounts/email/").status_code == 200


def test_after_a_log_in_of_these_minutes_it_is_given_one(cleo: User) -> None:
    browser = Client()
    browser.force_login(cleo)
    came = RequestFactory().get("/accounts/oidc/company/login/callback/")
    came.user, came.session = cleo, browser.session
    record_authentication(came, cleo, "socialaccount", provider="company")
    came.session.save()

    browser.post(SET_UP, CHOSEN)

    cleo.refresh_from_db()
    assert cleo.has_usable_password()
