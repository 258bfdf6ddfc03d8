"""Pages and mails of an account speak as the others do, and what a password lacks is said; whoever
has a mail sent has no say in where its link leads.
"""

import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from allauth.mfa.totp.internal.auth import (
    format_hotp_value,
    hotp_value,
    yield_hotp_counters_from_time,
)
from django.contrib.auth.hashers import make_password
from django.core import mail
from django.test import Client

from tests import people
from workspaces import entrance, teams
from workspaces.models import User

pytestmark = pytest.mark.django_db
acme, operators, ada = people.acme, people.operators, people.ada

STRANGERS = (
    "login/", "password/reset/", "password/reset/done/", "password/reset/key/1-x/",
    "3rdparty/login/cancelled/", "3rdparty/login/error/",
    "password/reset/key/done/", "confirm-email/", "confirm-email/over/", "inactive/", "signup/",
)  # fmt: skip
OWN = (
    "email/", "password/change/", "reauthenticate/", "logout/", "2fa/", "2fa/totp/activate/",
    "2fa/webauthn/", "sessions/",
)  # fmt: skip
LIBRARY = re.compile(
    "Third-Party|Sign [IU]|sign(ed)? up|Change Password|Reset|Email Address|"
    "E?mail address(es)? (is|are) "
    "associated|contact us|Two-Factor|token|Verif|we'll|Thank you|Hello from",
)
"""What a page of the library would say and none of ours does."""


def said(html: str) -> str:
    body = re.sub(
        r"<(script|style).*?</\1>|<[^>]*>", " ", html.partition("<main")[2], flags=re.DOTALL
    )
    return re.sub(r"\s+", " ", body)


def test_each_page_of_an_account_is_in_our_words(client: Client, ada: User) -> None:
    theirs = {one: LIBRARY.findall(said(client.get(f"/accounts/{one}").text)) for one in STRANGERS}
    client.force_login(ada)
    theirs |= {one: LIBRARY.findall(said(client.get(f"/accounts/{one}").text)) for one in OWN}

    assert {one: words for one, words in theirs.items() if words} == {}


def test_what_was_wrong_and_what_was_done_is_told_in_our_words(client: Client, ada: User) -> None:
    User.objects.filter(pk=ada.pk).update(password=make_password("a long enough secret"))
    log_in = {"login": ada.email, "password": "not this one"}
    assert (
        "no account with this address and this password"
        in client.post("/accounts/login/", log_in).text
    )
    page = client.post(
        "/accounts/login/", log_in | {"password": "a long enough secret"}, follow=True
    )
    assert "Successfully" not in page.text
    setting_up, origin = "/accounts/2fa/totp/activate/", "http://testserver"
    keys = "/w/acme/settings/signing-keys/?table=1"
    page = client.get(setting_up, headers={"Referer": origin + keys}, follow=True)
    assert "Confirm that it is you" in page.text
    assert f'href="{keys}">Not now' in page.text
    elsewhere = client.get("/accounts/2fa/", headers={"Referer": "http://evil.example/w/acme/"})
    assert f'href="{keys}">Back to where you were' in elsewhere.text
    client.post("/accounts/reauthenticate/", {"password": "a long enough secret"})
    secret = client.get(setting_up).context["form"].secret
    assert "not the code that is shown now" in client.post(setting_up, {"code": "12"}).text
    code = format_hotp_value(hotp_value(secret, next(yield_hotp_counters_from_time())))

    page = client.post(setting_up, {"code": code}, follow=True)

    assert "10 of 10 are left" in said(page.text)
    assert f'href="{keys}">I have them: back' in page.text


def test_mails_of_an_account_say_who_asks_for_what_and_what_else_to_do(
    client: Client, ada: User
) -> None:
    client.post("/accounts/password/reset/", {"email": ada.email})
    client.post("/accounts/password/reset/", {"email": "nobody@example.com"})
    lea = User.objects.create_user("lea@example.com", "correct horse", name="Lea")
    client.force_login(lea)
    client.post("/address/")

    new, none, proof = mail.outbox
    assert [one.subject for one in mail.outbox] == [
        "[Amends] Choose a new password",
        "[Amends] No account with this address",
        "[Amends] Is this address yours?",
    ]
    assert "do nothing: your password stays as it is" in str(new.body)
    assert "Accounts are made by invitation" in str(none.body)
    assert "under the name Lea" in str(proof.body)
    assert not [one.body for one in mail.outbox if LIBRARY.search(str(one.body))]


@pytest.mark.parametrize(
    ("password", "why"),
    [
        ("short", "too short: it takes at least 12 characters"),
        ("jonathan.weber", "nearly your name or your address"),
        ("Jonathan Weber", "nearly your name or your address"),
        ("1234567890123", "only digits"),
        ("administrator", "Many people have this password"),
    ],
)
def test_a_password_that_is_guessed_soon_is_refused_with_what_to_do(
    client: Client, acme: Any, ada: User, password: str, why: str
) -> None:
    teams.add(people.team(acme, "admins", "view", "administer"), ada, by=None)
    token = entrance.invite(acme, "jonathan.weber@example.com", [], by=ada)

    page = client.post(f"/join/{token}/", {"name": "Jonathan Weber", "password": password})

    assert why in page.text
    assert not User.objects.filter(email="jonathan.weber@example.com").exists()
    client.force_login(ada)
    change = {"oldpassword": "x", "password1": "short", "password2": "short"}
    assert (
        "too short: it takes at least 12" in client.post("/accounts/password/change/", change).text
    )


ELSEWHERE = "127.0.0.1:1"
"""A host that the desk answers to, and a port at which somebody else may listen."""


def test_a_mailed_link_leads_to_the_desk_whatever_host_the_request_named(
    ada: User, settings: Any
) -> None:
    settings.AMENDS_URL = "https://desk.example"
    stranger, hers = (Client(headers={"host": ELSEWHERE}) for _ in range(2))
    hers.force_login(ada)

    stranger.post("/accounts/password/reset/", {"email": ada.email})
    stranger.post("/accounts/password/reset/", {"email": "nobody@example.com"})
    adding = ("/accounts/email/", {"email": "new@example.com", "action_add": "1"})
    sent_on = hers.post(*adding).headers["Location"]
    assert "/accounts/reauthenticate/" in sent_on, "whoever finds her browser open"
    hers.post("/accounts/reauthenticate/", {"password": "correct horse"})
    hers.post(*adding)

    reset, nobody, proof = sorted(mail.outbox, key=lambda one: one.to[0] != ada.email)
    assert (reset.to, nobody.to, proof.to) == (
        [ada.email], ["nobody@example.com"], ["new@example.com"],
    )  # fmt: skip
    for one in (reset, nobody, proof):
        links = re.findall(r"https?://\S+", str(one.body))
        assert {urlsplit(link)[:2] for link in links} <= {("https", "desk.example")}, one.subject
        assert ELSEWHERE not in f"{one.subject} {one.body}"
    path = re.findall(r"https://desk.example(/accounts/password/reset/key/\S+)", str(reset.body))
    assert stranger.get(path[0], follow=True).status_code == 200
