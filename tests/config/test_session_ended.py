"""A form is sent after the session has ended: nothing is done, and the way leads back to it."""

from datetime import timedelta

import pytest
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from tests import people
from workspaces.clock import database_time
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


@pytest.mark.parametrize("days", [20, -20])
def test_a_session_lives_and_ends_by_the_databases_clock(
    acme: Workspace, ada: User, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """A web process whose clock went weeks ahead logged out whoever asked it."""
    before, right = people.logged_in(ada), timezone.now
    monkeypatch.setattr(timezone, "now", lambda: right() + timedelta(days=days))
    since = people.logged_in(ada)
    call_command("clearsessions")

    for browser in (before, since):
        assert browser.get("/w/acme/queue/").status_code == 200
    for one in Session.objects.all():
        assert abs(one.expire_date - database_time() - timedelta(days=14)) < timedelta(minutes=1)
    Session.objects.update(expire_date=database_time() - timedelta(seconds=1))
    assert before.get("/w/acme/queue/").status_code == 302
