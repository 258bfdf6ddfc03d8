"""Whoever made an account under somebody's address keeps no way into it for when they have come."""

import re
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.models import SocialAccount, SocialLogin
from django.contrib.sessions.backends.db import SessionStore
from django.core import mail
from django.test import Client, RequestFactory

from config.providers import COMPANY
from config.single_sign_on import CompanyAccountAdapter
from tests import people
from workspaces import entrance, independence
from workspaces.models import LoginProvider, Team, User, Workspace

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


def test_whom_one_companys_log_in_lets_in_joins_another_with_a_password_of_their_own(
    acme: Workspace, globex: Workspace
) -> None:
    """Joined without one they were logged out, and no page led them in again."""
    ann = people.person("ann", people.team(acme, "leads", "view", "administer"))
    boss = people.person("boss", people.team(globex, "bosses", "view", "administer"))
    row = LoginProvider.objects.create(workspace=acme, name="Acme", issuer="https://x", set_by=ann)
    cleo = people.person("cleo", people.team(acme, "operators", "view"))
    cleo.set_unusable_password()
    cleo.save()
    SocialAccount.objects.create(user=cleo, provider=row.provider_id, uid="cleo")
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


def test_an_invitation_alone_opens_no_account_that_is_there(acme: Workspace) -> None:
    """Its administrator sees the link, and may be nobody to whom the account belongs."""
    boss = people.person("boss", people.team(acme, "bosses", "view", "administer"))
    cleo = people.person("cleo")
    link = f"/join/{entrance.invite(acme, cleo.email, [], by=boss)}/"

    answer = Client().post(link, {"password": PASSWORD})

    assert answer.headers["location"].startswith("/accounts/login/")
    cleo.refresh_from_db()
    assert not cleo.check_password(PASSWORD)
