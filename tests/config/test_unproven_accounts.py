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
from workspaces.models import Team, User, Workspace

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
