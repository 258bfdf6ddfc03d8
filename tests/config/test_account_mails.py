"""Mails of the account: whoever has one sent has no say in where its link leads."""

import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core import mail
from django.test import Client

from tests import people
from workspaces.models import User

pytestmark = pytest.mark.django_db
acme, operators, ada = people.acme, people.operators, people.ada

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
