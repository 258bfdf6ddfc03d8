"""Consoles that ask for news: “none” is said at the door, everything else by Django."""

import asyncio
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from django.utils import timezone

from approvals import inbox
from approvals.models import Approval
from tests.approvals.door import visit
from tests.people import person
from workspaces import teams

pytestmark = pytest.mark.django_db(transaction=True)

PASSED_ON = 299
INBOX, QUEUE = "/w/acme/approvals/fresh/", "/w/acme/queue/fresh/"


async def django(scope, receive, send):
    """Stands where Django stands, and answers what nobody else does."""
    await send({"type": "http.response.start", "status": PASSED_ON, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def entered(who):
    browser = Client()
    browser.force_login(who)
    return browser


def cookie_of(browser):
    name = settings.SESSION_COOKIE_NAME
    return f"{name}={browser.cookies[name].value}"


def elsewhere(act):
    """Somebody acts in another process, with a connection of their own."""
    try:
        act()
    finally:
        connection.close()


def polled(cookie, path=INBOX, since=None, meanwhile=None):
    """What two polls of one open page get, with `meanwhile()` between them."""
    since = quote((since or datetime.now(UTC)).isoformat())

    async def story(client):
        answers = []
        for act in (None, meanwhile):
            if act is not None:
                await asyncio.to_thread(elsewhere, act)
            told = await client.get(f"{path}?since={since}", headers={"cookie": cookie})
            answers.append(told.status_code)
        return answers

    return visit(story, behind=django)


@pytest.mark.parametrize("path", [INBOX, QUEUE])
def test_a_console_that_nothing_is_new_for_is_answered_at_the_door(ben, ask, path):
    Approval.objects.filter(pk=ask().pk).update(asked_at=timezone.now() - timedelta(hours=1))

    assert polled(cookie_of(entered(ben)), path) == [204, 204]


def test_what_was_asked_or_decided_since_is_djangos_to_tell(ben, cleo, ask):
    cookie = cookie_of(entered(ben))
    approval = ask()

    assert polled(cookie, meanwhile=ask) == [204, PASSED_ON]

    def decided():
        inbox.grant(approval, by=cleo, seen=approval.digest)

    assert polled(cookie, meanwhile=decided) == [204, PASSED_ON]


def deactivated(ben, browser, finance):
    ben.is_active = False
    ben.save()


def out_of_the_team(ben, browser, finance):
    teams.remove(finance, ben, by=None)


def of_a_team_that_may_nothing(ben, browser, finance):
    teams.withdraw(finance, "view", by=None)


def with_another_password(ben, browser, finance):
    ben.set_password("another long password")
    ben.save()


def logged_out(ben, browser, finance):
    browser.logout()


def too_old(ben, browser, finance):
    Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))


def of_somebody_else(ben, browser, finance):
    other = entered(person("zoe"))
    stored = Session.objects.get(pk=other.session.session_key).session_data
    Session.objects.filter(pk=browser.session.session_key).update(session_data=stored)


@pytest.mark.parametrize(
    "become",
    [
        deactivated, out_of_the_team, of_a_team_that_may_nothing, with_another_password, logged_out,
        too_old, of_somebody_else,
    ],
    ids=lambda story: story.__name__,
)  # fmt: skip
def test_who_may_no_longer_look_is_not_even_told_that_nothing_is_new(ben, ada, finance, become):
    browser = entered(ben)

    assert polled(
        cookie_of(browser), meanwhile=lambda: become(ben, browser, finance)
    ) == [204, PASSED_ON]  # fmt: skip


def test_strangers_are_left_to_django(ben, dev):
    stranger = cookie_of(entered(dev))
    assert polled(stranger) == [PASSED_ON, PASSED_ON]
    assert polled("") == [PASSED_ON, PASSED_ON]
    assert polled(f"{settings.SESSION_COOKIE_NAME}=%00'--") == [PASSED_ON, PASSED_ON]
    assert polled(f"{settings.SESSION_COOKIE_NAME}={'a' * 32}") == [PASSED_ON, PASSED_ON]


@pytest.mark.parametrize("since", ["", "?since=soon", "?since=2026-13-45T00:00Z", "?since=%00"])
def test_a_moment_that_is_none_is_left_to_django(ben, since):
    cookie = cookie_of(entered(ben))

    async def story(client):
        return (await client.get(INBOX + since, headers={"cookie": cookie})).status_code

    assert visit(story, behind=django) == PASSED_ON
