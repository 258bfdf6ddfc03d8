"""A form is sent after the session has ended: nothing is done, and the way leads back to it."""

import pytest
from django.test import Client

from tests import people
from workspaces.models import User, Workspace

pytestmark = pytest.mark.django_db
acme, operators, ada = people.acme, people.operators, people.ada
FORM = "/w/acme/settings/members/invite/"
PAGE = "/w/acme/settings/members/"


def test_who_logs_in_again_is_back_at_the_page_of_the_form(acme: Workspace, ada: User) -> None:
    ada.set_password("a long enough secret")
    ada.save()
    client = Client()
    here = {"referer": f"http://localhost{PAGE}?tab=1"}
    sent = client.post(FORM, {"email": "x@example.com"}, headers=here, SERVER_NAME="localhost")
    assert sent["Location"] == "/accounts/login/?next=/w/acme/settings/members/%3Ftab%3D1"

    said = {"login": ada.email, "password": "a long enough secret"}
    back = client.post(sent["Location"], said, SERVER_NAME="localhost")

    assert back["Location"] == f"{PAGE}?tab=1"
    assert client.get(back["Location"], SERVER_NAME="localhost").status_code == 200


def test_a_part_of_a_page_is_not_replaced_by_the_log_in(acme: Workspace) -> None:
    headers = {"hx-request": "true", "hx-current-url": f"http://localhost{PAGE}"}
    sent = Client().post(FORM, {"email": "x"}, headers=headers, SERVER_NAME="localhost")

    assert sent.status_code == 401
    assert sent["HX-Redirect"] == "/accounts/login/?next=%2Fw%2Facme%2Fsettings%2Fmembers%2F"


@pytest.mark.parametrize(
    "elsewhere", ["https://evil.example/w/acme/", "http://localhost/c/token/", "", "http://[bad"]
)
def test_the_way_back_never_leads_out_of_the_desk(acme: Workspace, elsewhere: str) -> None:
    sent = Client().post(FORM, {}, headers={"referer": elsewhere}, SERVER_NAME="localhost")

    assert sent["Location"] == "/accounts/login/?next=/"
