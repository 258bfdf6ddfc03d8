"""Consoles that ask for news: the door says “none”, and what is new in the usual inbox."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import psycopg
import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import connection
from django.utils import timezone

from approvals import inbox
from approvals.models import Approval
from approvals.policy import RequiredApprovers
from edge.asgi import PassOn
from recovery.casework import cases, closing
from recovery.models import Case
from tests.approvals import door
from tests.approvals.door import visit
from tests.people import logged_in, person
from tests.recovery.cases.cast import AgentRun
from workspaces import teams
from workspaces.news import moment, route_of_news

statements = door.statements
pytestmark = pytest.mark.django_db(transaction=True)

PASSED_ON = 299
INBOX, QUEUE = "/w/acme/approvals/fresh/", "/w/acme/queue/fresh/"


async def django(scope, receive, send):
    """Stands where Django stands, and answers what nobody else does."""
    await send({"type": "http.response.start", "status": PASSED_ON, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def cookie_of(browser):
    name = settings.SESSION_COOKIE_NAME
    return f"{name}={browser.cookies[name].value}"


def elsewhere(act):
    """Somebody acts in another process, with a connection of their own."""
    try:
        act()
    finally:
        connection.close()


def answered(cookie, paths):
    """What the door says to each, in turn."""

    async def story(client):
        return [await client.get(path, headers={"cookie": cookie}) for path in paths]

    return visit(story, behind=django)


def polled(cookie, path=INBOX, since=None, meanwhile=None):
    """What two polls of one open page get, with `meanwhile()` between them."""
    since = quote((since or datetime.now(UTC)).isoformat())
    path += f"{'&' if '?' in path else '?'}since={since}"

    async def story(client):
        answers = []
        for act in (None, meanwhile):
            if act is not None:
                await asyncio.to_thread(elsewhere, act)
            told = await client.get(path, headers={"cookie": cookie})
            answers.append(told.status_code)
        return answers

    return visit(story, behind=django)


def test_a_console_that_nothing_is_new_for_is_answered_at_the_door(ben, ask):
    Approval.objects.filter(pk=ask().pk).update(asked_at=timezone.now() - timedelta(hours=1))

    cookie = cookie_of(logged_in(ben))
    assert [polled(cookie, INBOX), polled(cookie, QUEUE)] == [[204, 204]] * 2


def test_a_queue_whose_case_is_open_again_has_news(ben, agent):
    started = AgentRun(agent, "run_1").begins()
    started.is_verified(started.does("orders.refund"), ok=False)
    case = started.ends("failed").case()
    closing.close(case, outcome="expected", reason="As asked", by=ben, seen=case.revision)
    Case.objects.update(opened_at=timezone.now() - timedelta(days=1))
    case.refresh_from_db()

    def reopened():
        cases.reopen(case, by=ben, seen=case.revision, reason="It was not")

    assert polled(cookie_of(logged_in(ben)), QUEUE, meanwhile=reopened) == [204, PASSED_ON]


def test_what_was_asked_or_decided_since_is_told(ben, cleo, ask):
    cookie = cookie_of(logged_in(ben))
    approval = ask()

    assert polled(cookie, meanwhile=ask) == [204, 200]

    def decided():
        inbox.grant(approval, by=cleo, seen=approval.digest)

    assert polled(cookie, meanwhile=decided) == [204, 200]


def test_how_long_the_oldest_waits_goes_on_counting(ask, ben):
    ask()

    page = logged_in(ben).get(INBOX.replace("fresh/", "")).text

    assert re.search(r'oldest waits <time [^>]*data-moment="span"', page)


def nothing(ask, ada, ben, cleo):
    pass


def asked(ask, ada, ben, cleo):
    ask()


def asked_of_two_teams(ask, ada, ben, cleo):
    ask(RequiredApprovers("finance", 1))
    ask(RequiredApprovers("leads", 1), RequiredApprovers(None, 1))


def asked_by_a_decider(ask, ada, ben, cleo):
    ask(by=ben)
    ask(by=ben, self_approval=True)


def owned_by_a_decider(ask, ada, ben, cleo):
    Approval.objects.filter(pk=ask().pk).update(agent_owner=ben)


def decided(ask, ada, ben, cleo):
    approval = ask()
    inbox.grant(approval, by=cleo, seen=approval.digest)


def rejected(ask, ada, ben, cleo):
    approval = ask(RequiredApprovers(None, 2))
    inbox.reject(approval, by=ben, seen=approval.digest, reason="wrong charge")


def answered_by_one_of_two(ask, ada, ben, cleo):
    approval = ask(RequiredApprovers("finance", 1), RequiredApprovers("leads", 1))
    inbox.grant(approval, by=ben, seen=approval.digest)


def over_time(ask, ada, ben, cleo):
    moment = timezone.now() - timedelta(seconds=1)
    Approval.objects.filter(pk=ask().pk).update(expires_at=moment)


def much(ask, ada, ben, cleo):
    for _ in range(4):
        ask()
        decided(ask, ada, ben, cleo)


HAPPENED = [
    nothing, asked, asked_of_two_teams, asked_by_a_decider, owned_by_a_decider, decided, rejected,
    over_time, much, answered_by_one_of_two,
]  # fmt: skip


@pytest.mark.parametrize("happen", HAPPENED, ids=lambda story: story.__name__)
def test_the_door_tells_what_django_would_tell(ask, ada, ben, cleo, dev, happen, monkeypatch):
    monkeypatch.setattr("approvals.news.LEFT_MAX", 3)
    monkeypatch.setattr("workspaces.news.LEFT_MAX", 3)
    ask()
    drawn = {"since": timezone.now().isoformat()}
    happen(ask, ada, ben, cleo)

    for reader in (ada, ben, cleo):
        browser = logged_in(reader)
        full = browser.get(INBOX, drawn).json()
        [said] = answered(cookie_of(browser), [INBOX + f"?since={quote(drawn['since'])}"])

        is_left = happen is answered_by_one_of_two and reader is cleo
        assert said.status_code == (PASSED_ON if is_left else 204 if happen is nothing else 200)
        if said.status_code == 200:
            told = said.json()
            apart = moment(told.pop("heard")) - moment(full.pop("heard"))
            assert told == full
            assert abs(apart) < timedelta(minutes=1)


def test_pages_that_ask_in_one_moment_are_each_told_what_is_news_to_them(
    ask, ada, ben, cleo, statements
):
    """Two people have twenty pages each, drawn and told at other moments."""
    drawn = [timezone.now().isoformat()]
    for happen in (asked, decided, rejected, asked_by_a_decider):
        happen(ask, ada, ben, cleo)
        drawn.append(timezone.now().isoformat())
    moments = [(since, heard) for since in drawn[:4] for heard in drawn]
    paths = [f"{INBOX}?since={quote(since)}&heard={quote(heard)}" for since, heard in moments]
    cookies = [cookie_of(logged_in(reader)) for reader in (ben, cleo)]
    alone = [answered(cookie, paths) for cookie in cookies]
    statements.clear()

    async def story(client):
        asked = [client.get(path, headers={"cookie": one}) for one in cookies for path in paths]
        return await asyncio.gather(*asked)

    together = visit(story, behind=django)

    said = [telling(one) for one in together]
    assert said == [telling(one) for each in alone for one in each]
    assert len({str(one) for one in said}) > 10
    assert len(statements) < 10


def telling(answer):
    """What was answered, but for the moment up to which it tells."""
    return answer.status_code, answer.content and {**answer.json(), "heard": ""}


def test_another_list_than_what_waits_for_me_is_left_to_django(ben, ask):
    drawn = datetime.now(UTC) - timedelta(minutes=1)
    ask()
    cookie = cookie_of(logged_in(ben))

    for more in ("q=refund", "view=all"):
        assert polled(cookie, f"{INBOX}?{more}", drawn) == [PASSED_ON, PASSED_ON], more


def test_what_a_page_has_heard_is_not_told_again_though_it_was_not_read(ben, ask):
    """The pill says “+1 new” and stays; the page sends back up to when it was told."""
    browser, drawn = logged_in(ben), datetime.now(UTC) - timedelta(minutes=5)
    asked = timezone.now() - timedelta(minutes=1)
    Approval.objects.filter(pk=ask().pk).update(asked_at=asked)
    told = browser.get(INBOX, {"since": drawn.isoformat()}).json()
    heard = f"{INBOX}?heard={quote(told['heard'])}"

    assert told["new"] == 1
    assert polled(cookie_of(browser), since=drawn) == [200, 200]
    assert polled(cookie_of(browser), heard, drawn, meanwhile=ask) == [204, 200]


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
    other = logged_in(person("zoe"))
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
    browser = logged_in(ben)

    assert polled(
        cookie_of(browser), meanwhile=lambda: become(ben, browser, finance)
    ) == [204, PASSED_ON]  # fmt: skip


def test_strangers_are_left_to_django(ben, dev):
    stranger = cookie_of(logged_in(dev))
    assert polled(stranger) == [PASSED_ON, PASSED_ON]
    assert polled("") == [PASSED_ON, PASSED_ON]
    assert polled(f"{settings.SESSION_COOKIE_NAME}=%00'--") == [PASSED_ON, PASSED_ON]
    assert polled(f"{settings.SESSION_COOKIE_NAME}={'a' * 32}") == [PASSED_ON, PASSED_ON]


def test_a_moment_as_no_clock_shows_it_takes_no_other_page_along(ben, ask):
    """PostgreSQL takes no offset of sixteen hours, and would refuse all that is asked with it."""
    ask()
    far = [f"2026-11-01T00:00:00{offset}" for offset in ("+16:00", "-23:59", "+00:00")]
    cookie = cookie_of(logged_in(ben))

    async def story(client):
        asked = [f"{page}?since={quote(one)}" for page in (INBOX, QUEUE) for one in far * 2]
        said = await asyncio.gather(*(client.get(one, headers={"cookie": cookie}) for one in asked))
        return [one.status_code for one in said]

    assert visit(story, behind=django) == [200] * 6 + [204] * 6


def test_what_takes_long_in_one_workspace_holds_up_no_page_of_another(ben):
    slow = route_of_news("/slow/", "(SELECT true FROM pg_advisory_xact_lock(77))")
    scope = {
        "query_string": b"since=2026-11-01T00:00:00Z",
        "headers": [(b"cookie", cookie_of(logged_in(ben)).encode())],
    }
    answered = []

    async def ask(workspace):
        with pytest.raises(PassOn):
            await slow.handler(scope | {"path_params": {"workspace": workspace}}, None, None)
        answered.append(workspace)

    async def story(_client):
        taking_long = asyncio.ensure_future(ask("acme"))
        await asyncio.wait_for(asyncio.gather(*(ask("another") for _ in range(3))), 30)
        holding.execute("SELECT pg_advisory_unlock(77)")
        await taking_long

    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as holding:
        holding.execute("SELECT pg_advisory_lock(77)")
        visit(story)

    assert answered == ["another"] * 3 + ["acme"]


def test_a_moment_that_is_none_is_left_to_django_and_nul_is_the_senders_mistake(ben):
    none = ("", "?since=soon", "?since=2026-13-45T00:00Z", "?since=9999-12-31T23:00:00-02:00")
    paths = [INBOX + since for since in (*none, "?since=%00")]

    said = [one.status_code for one in answered(cookie_of(logged_in(ben)), paths)]

    assert said == [PASSED_ON] * len(none) + [400]


async def whole(scope, receive, send):
    """As Django does, it reads the body first."""
    while (await receive()).get("more_body"):
        pass
    await django(scope, receive, send)


def test_who_never_ends_their_question_keeps_no_others_from_an_answer():
    """Few at a time are passed on, and anybody may ask: two who withheld a body stopped all."""

    async def story(client):
        begun, ending = asyncio.Semaphore(0), asyncio.Event()

        async def withheld():
            begun.release()
            yield b"a"
            await ending.wait()

        holding = [
            asyncio.create_task(client.request("GET", INBOX, content=withheld())) for _ in range(2)
        ]
        for _ in holding:
            await begun.acquire()
        answer = await asyncio.wait_for(client.get(INBOX), 30)
        ending.set()
        return answer.status_code, [(await one).status_code for one in holding]

    assert visit(story, behind=whole) == (PASSED_ON, [413, 413])
