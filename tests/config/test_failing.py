"""A database that does not answer in time is no failure of ours: 503, and when to come back."""

import os

import psycopg
import pytest
import redis
from django.conf import settings
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


UNWRITTEN = """
CREATE FUNCTION unwritten() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {0} END $$;
CREATE TRIGGER unwritten BEFORE UPDATE ON django_session
FOR EACH ROW EXECUTE FUNCTION unwritten()"""
ENDED, CANCELLED = "RETURN NULL;", "RAISE EXCEPTION USING ERRCODE = '57014';"


@pytest.mark.parametrize(("why", "status"), [(ENDED, 302), (CANCELLED, 503)], ids=["ended", "away"])
def test_where_a_session_cannot_be_written_nobody_says_that_nothing_was_changed(
    acme, ada, why, status
):
    """By then the view has done what was asked of it."""
    browser = Client(raise_request_exception=False)
    browser.force_login(ada)
    with connection.cursor() as cursor:
        cursor.execute(UNWRITTEN.format(why))

    here = {"referer": "http://localhost/w/acme/queue/"}  # which the session is to remember
    answer = browser.get("/accounts/email/", headers=here, SERVER_NAME="localhost")

    assert answer.status_code == status
    assert "Nothing was changed" not in answer.text


FULL = [["CONFIG", "SET", "maxmemory", "1mb"], ["CONFIG", "SET", "maxmemory", "0"]]
READ_ONLY = [["REPLICAOF", "127.0.0.1", "1"], ["REPLICAOF", "NO", "ONE"]]


@pytest.mark.parametrize(("fault", "mended"), [FULL, READ_ONLY], ids=["full", "read-only"])
def test_where_attempts_to_log_in_cannot_be_counted_that_is_said_and_nobody_is_let_in(
    acme, ada, fault, mended
):
    ada.set_password("a long enough secret")
    ada.save()
    said = {"login": ada.email, "password": "a long enough secret"}
    stranger, known = (Client(raise_request_exception=False) for _ in range(2))
    known.force_login(ada)

    with redis.Redis.from_url(settings.REDIS_URL) as valkey:
        valkey.execute_command(*fault)
        try:
            answer, page = stranger.post("/accounts/login/", said), known.get("/w/acme/queue/")
        finally:
            valkey.execute_command(*mended)

    assert (answer.status_code, answer["Retry-After"]) == (503, "2")
    assert "Nobody can log in or prove who they are just now" in answer.text
    assert page.status_code == 200
    assert stranger.post("/accounts/login/", said).status_code == 302


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
