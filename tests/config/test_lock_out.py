"""Wrong passwords are a way to guess, and must not be a way to keep a named person out."""

import itertools
import time

import pytest
from allauth.mfa.totp.internal import auth
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.core.cache import cache
from django.test import Client

from config import accounts
from workspaces.models import User

pytestmark = pytest.mark.django_db
SECRET = "a long enough secret"
HERS, HIS = "203.0.113.7", "198.51.100.9"


@pytest.fixture(autouse=True)
def nothing_counted():
    cache.clear()


@pytest.fixture
def ben() -> User:
    return User.objects.create_user("ben@example.com", SECRET, name="Ben")


def log_in(client: Client, password: str, address: str, email: str = "ben@example.com") -> bool:
    """Whether the password was taken."""
    said = {"login": email, "password": password}
    return client.post("/accounts/login/", said, REMOTE_ADDR=address).status_code == 302


def guess(times: int, addresses: object) -> None:
    """Mallory, each time from the next address."""
    for address in itertools.islice(addresses, times):  # type: ignore[call-overload]
        assert not log_in(Client(), "guessed", address)


def many() -> object:
    return (f"192.0.2.{n}" for n in itertools.count(1))


def test_whoever_guesses_from_one_address_is_stopped_there_even_with_the_right_one(ben):
    guess(5, itertools.repeat(HIS))

    assert not log_in(Client(), SECRET, HIS)


def test_five_wrong_passwords_of_a_stranger_keep_nobody_out_who_is_elsewhere(ben):
    guess(7, itertools.repeat(HIS))

    assert log_in(Client(), SECRET, HERS)


def test_a_device_that_is_known_is_let_in_from_the_strangers_own_address(ben):
    his_browser = Client()
    assert log_in(his_browser, SECRET, HERS)
    his_browser.post("/accounts/logout/")
    guess(7, itertools.repeat(HIS))

    assert log_in(his_browser, SECRET, HIS)


def test_guesses_from_ever_new_addresses_end_and_a_known_device_is_let_in(ben, monkeypatch):
    monkeypatch.setattr(
        accounts, "FROM_ALL_UNKNOWN_DEVICES", {accounts.LOGIN_FAILED: "6/3600s/key"}
    )
    his_browser = Client()
    assert log_in(his_browser, SECRET, HERS)
    his_browser.post("/accounts/logout/")
    guess(8, many())

    assert not log_in(Client(), SECRET, HERS)  # nobody knows this device
    assert log_in(his_browser, SECRET, HERS)


def test_a_second_factor_lets_in_what_a_password_alone_would_not(ben, monkeypatch):
    monkeypatch.setattr(
        accounts, "FROM_ALL_UNKNOWN_DEVICES", {accounts.LOGIN_FAILED: "6/3600s/key"}
    )
    TOTP.activate(ben, generate_totp_secret())
    guess(8, many())
    browser = Client()

    assert log_in(browser, SECRET, HERS)
    assert "_auth_user_id" not in browser.session  # the code is asked for now
    assert accounts.DEVICE_COOKIE not in browser.cookies  # and only then is the device known


@pytest.mark.parametrize("before", [0, 1], ids=["the_same", "an_earlier_one"])
def test_a_code_is_taken_once_whatever_the_cache_has_forgotten(ben, monkeypatch, before):
    secret, now = generate_totp_secret(), 60_000_000
    TOTP.activate(ben, secret)

    def let_in(step):
        monkeypatch.setattr(auth, "yield_hotp_counters_from_time", lambda: iter([step]))
        cache.clear()
        browser = Client()
        assert log_in(browser, SECRET, HERS)
        code = auth.format_hotp_value(auth.hotp_value(secret, step))
        browser.post("/accounts/2fa/authenticate/", {"code": f"{code[:3]} {code[3:]}"})
        return "_auth_user_id" in browser.session

    assert let_in(now)
    assert not let_in(now - before)
    assert let_in(now + 1)
    assert let_in(now + 1_000_000)  # by a clock that went ahead for a while
    assert let_in(now + 2)


def test_a_known_device_guesses_no_more_than_others_do_and_is_nobody_elses(ben):
    User.objects.create_user("cleo@example.com", SECRET, name="Cleo")
    browser = Client()
    assert log_in(browser, SECRET, HERS)
    browser.post("/accounts/logout/")
    for _ in range(10):
        assert not log_in(browser, "guessed", HERS)

    assert not log_in(browser, SECRET, HERS)
    for _ in range(5):
        assert not log_in(browser, "guessed", HIS, "cleo@example.com")
    assert not log_in(browser, SECRET, HIS, "cleo@example.com")  # unknown to her account


def test_a_cookie_that_nobody_signed_makes_no_device_known(ben):
    browser = Client()
    browser.cookies[accounts.DEVICE_COOKIE] = '{"id": "x", "accounts": ["ben@example.com"]}'
    guess(5, itertools.repeat(HIS))

    assert not log_in(browser, SECRET, HIS)


@pytest.mark.parametrize("off", [3_600, -3_600])
def test_a_code_is_the_one_of_now_by_the_databases_clock(ben, monkeypatch, off):
    """Where a web process's own was off, nobody was let in who has an app for codes."""
    secret, right = generate_totp_secret(), time.time
    TOTP.activate(ben, secret)
    browser = Client()
    monkeypatch.setattr(time, "time", lambda: right() + off)

    assert log_in(browser, SECRET, HERS)
    for _ in range(2):  # it may turn just as it is typed
        code = auth.format_hotp_value(auth.hotp_value(secret, int(right()) // 30))
        answer = browser.post("/accounts/2fa/authenticate/", {"code": code})
        if answer.status_code == 302:
            break

    assert "_auth_user_id" in browser.session
