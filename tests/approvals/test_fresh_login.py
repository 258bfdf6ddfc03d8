"""A fresh log-in is fresh by the database's clock, at whichever web process it was made."""

import time
from datetime import timedelta

import pytest
from django.contrib.auth.hashers import make_password
from django.test import Client

from approvals.models import ApprovalState
from tests.approvals.test_pages import PASSWORD, card_of, decide
from workspaces import clock, fresh_login

HOUR = 3600


@pytest.fixture
def logs_in(ben, monkeypatch):
    """Ben logs in at a web process whose clock is off by so many seconds."""

    def enter(astray):
        ben.set_password(PASSWORD)
        ben.save()
        browser, right = Client(), time.time
        with monkeypatch.context() as web:
            web.setattr(time, "time", lambda: right() + astray)
            browser.post("/accounts/login/", {"login": ben.email, "password": PASSWORD})
        return browser

    return enter


@pytest.mark.parametrize("astray", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_a_log_in_is_fresh_for_five_minutes_whatever_the_web_processs_clock_says(
    ask, logs_in, monkeypatch, astray
):
    approval, browser = ask(fresh_login=True, risk="critical"), logs_in(astray)
    at_once = clock.now()

    monkeypatch.setattr(clock, "now", lambda: at_once + timedelta(seconds=374))
    card = browser.get(card_of(approval)).text
    assert ("reauthenticate" in card, "Why you are asked" in card) == (True, True)
    assert decide(browser, approval).status_code == 409
    monkeypatch.setattr(clock, "now", lambda: at_once + timedelta(seconds=200))
    assert decide(browser, approval).status_code == 302

    approval.refresh_from_db()
    assert approval.state == ApprovalState.GRANTED


@pytest.mark.django_db
def test_what_was_proved_at_a_time_that_is_still_to_come_proves_nothing():
    assert not fresh_login.is_fresh(clock.now() + timedelta(minutes=1))
    assert fresh_login.is_fresh(clock.now())


@pytest.mark.parametrize("astray", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_who_proves_it_again_at_such_a_process_is_fresh_from_then_on(ask, logs_in, astray):
    approval, browser = ask(fresh_login=True, risk="critical"), logs_in(astray)
    session = browser.session
    for record in session["account_authentication_methods"]:
        record["proved_at"] -= HOUR
    session.save()
    assert decide(browser, approval).status_code == 409

    browser.post("/accounts/reauthenticate/", {"password": PASSWORD})

    assert decide(browser, approval).status_code == 302


def test_who_proves_it_again_stays_logged_in_though_the_hash_of_the_password_is_renewed(
    ask, ben, settings
):
    settings.PASSWORD_HASHERS = [
        "django.contrib.auth.hashers.PBKDF2PasswordHasher",
        "django.contrib.auth.hashers.MD5PasswordHasher",
    ]
    ben.password = make_password(PASSWORD, hasher="md5")
    ben.save()
    browser = Client()
    browser.force_login(ben, "django.contrib.auth.backends.ModelBackend")

    browser.post("/accounts/reauthenticate/", {"password": PASSWORD})

    ben.refresh_from_db()
    assert ben.password.startswith("pbkdf2"), "renewed"
    assert decide(browser, ask(fresh_login=True, risk="critical")).status_code == 302
