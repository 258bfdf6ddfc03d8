"""A database that does not answer in time is no failure of ours: 503, and when to come back."""

import os

import psycopg
import pytest
from django.db import connection
from django.test import Client

from tests import people

pytestmark = pytest.mark.django_db
acme, operators, ada = people.acme, people.operators, people.ada


@pytest.fixture
def impatient():
    """Somebody else holds the tables of links and tokens, and we wait for nobody."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as somebody:
        somebody.execute("LOCK TABLE workspaces_invitation, workspaces_persontoken")
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '10ms'")
        yield Client(raise_request_exception=False)


def test_a_page_that_cannot_be_read_says_when_to_come_back(impatient):
    answer = impatient.get("/join/no-such-token/")

    assert answer.status_code == 503
    assert answer["Retry-After"] == "2"
    assert "does not answer just now" in answer.content.decode()


def test_so_does_the_api_as_a_problem(impatient):
    who = {"authorization": "Bearer amends_0123456789_nobody"}

    answer = impatient.get("/api/v1/cases", headers=who)

    assert answer.status_code == 503
    assert answer["Retry-After"] == "2"
    assert answer["Content-Type"] == "application/problem+json"


def test_a_text_that_cannot_be_kept_is_its_senders_mistake(acme, ada):
    rina = Client(raise_request_exception=False)
    rina.force_login(ada)

    answer = rina.get("/w/acme/approvals/", {"view": "all", "q": "refund\x00"})

    assert answer.status_code == 400


def test_a_form_in_another_alphabet_than_ours_is_its_senders_mistake():
    stranger = Client(raise_request_exception=False, enforce_csrf_checks=True)
    stranger.get("/accounts/login/")  # whoever has a cookie of ours has their form looked at
    told = "application/x-www-form-urlencoded; charset=utf-16"

    answer = stranger.generic("POST", "/accounts/login/", b"login=ada", content_type=told)

    assert answer.status_code == 400
    assert "did not understand the request" in answer.content.decode()
