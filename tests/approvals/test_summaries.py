"""A mail a day of what waits for a person: once, at their hour, while somebody is at work."""

import json
import re
import threading
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.test import Client

from approvals import inbox, notifications, versions
from approvals.models import Approval, DailySummary
from approvals.policy import RequiredApprovers
from connectors import channels
from connectors.models import Delivery
from ledger.erasure import erase
from tests.approvals.cast import put_in_force, refund
from tests.approvals.door import Agent as Trip
from tests.locks import waits
from tests.people import logged_in, person, team
from workspaces import clock

CANARY = "canary-7731"


@pytest.fixture
def at(monkeypatch):
    """`at(hours)`: the person's hour began so many hours ago, by the database's own clock."""

    def set_hour(ben, acme, hours=1):
        there = clock.database_time().astimezone(ZoneInfo(acme.timezone or "UTC"))
        notifications.choose_hour(acme, ben, (there - timedelta(hours=hours)).hour)

    return set_hour


def a_day_goes_by():
    """The day that is dealt with is one day older than it was."""
    for wish in DailySummary.objects.all():
        wish.written_for -= timedelta(days=1)
        wish.save()


def mails():
    return [
        one.message
        for one in Delivery.objects.filter(subject=notifications.SUMMARY_SUBJECT).order_by("pk")
    ]


def test_whoever_wants_it_reads_once_a_day_what_waits_for_them(ask, acme, ben, at, post_office):
    at(ben, acme)
    first = ask(RequiredApprovers("finance", 1))
    ask(RequiredApprovers("leads", 1))  # not for Ben
    Approval.objects.filter(pk=first.pk).update(
        amount_minor=128_600, currency="USD", headline=f"Refund {CANARY}"
    )

    assert notifications.write_summaries() == 0, "from the next time on"
    a_day_goes_by()
    assert [notifications.write_summaries(), notifications.write_summaries()] == [1, 0]
    while channels.send_due():
        pass

    [letter] = [one for one in post_office() if one["subject"].startswith("1 question for you")]
    assert letter["to"] == [ben.email]
    assert "$1 286.00" in letter["text"].replace("\u00a0", " ")
    assert f"/w/acme/approvals/{first.pk}/" in letter["text"]
    assert "/w/acme/settings/summary/" in letter["text"]
    assert CANARY not in json.dumps(letter)


def test_where_nothing_waits_nothing_is_sent_and_the_day_is_over(ask, acme, ben, cleo, at):
    at(ben, acme)
    a_day_goes_by()
    assert notifications.write_summaries() == 1

    ask()

    assert notifications.write_summaries() == 0
    assert mails() == []


def test_who_may_not_decide_any_more_or_has_decided_is_not_told_of_it(ask, acme, ben, cleo, at):
    both = ask(RequiredApprovers("finance", 1), RequiredApprovers("leads", 1))
    at(ben, acme)
    at(cleo, acme)
    inbox.grant(both, by=ben, seen=both.digest, reason="fine")
    acme.teams.get(name="leads").group.user_set.remove(cleo)
    a_day_goes_by()

    assert notifications.write_summaries() == 2
    assert mails() == []


def test_it_waits_until_somebody_is_at_work(ask, acme, ben, ada, at):
    now = clock.database_time()
    closed = {"zone": "UTC", "days": [f"{now + timedelta(days=2):%a}".lower()], "from": "08:00"}
    in_force = versions.save(acme, json.dumps({"hours": closed | {"to": "18:00"}}), by=ada)
    versions.activate(in_force, by=ada)
    at(ben, acme)
    ask()
    a_day_goes_by()
    assert notifications.write_summaries() == 0

    days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
    always = {"zone": "UTC", "days": days, "from": "00:00", "to": "24:00"}
    opened = versions.save(acme, json.dumps({"hours": always}), by=ada)
    versions.activate(opened, by=ada)

    assert notifications.write_summaries() == 1
    assert len(mails()) == 1


def test_a_day_begins_at_the_hour_by_the_clock_of_the_person(acme, ben):
    ben.timezone = "Pacific/Auckland"
    ben.save()
    there = ZoneInfo(ben.timezone)

    for hours in (0, 23):
        before = datetime.now(there)
        hour = (before - timedelta(hours=hours)).hour
        notifications.choose_hour(acme, ben, hour)
        begun = {(one - timedelta(hours=hour)).date() for one in (before, datetime.now(there))}
        assert DailySummary.objects.get().written_for in begun, "two only while an hour turns"


def test_a_break_in_the_middle_leaves_all_or_nothing_and_another_try_writes_one(
    ask, acme, ben, at, monkeypatch
):
    ask()
    at(ben, acme)
    a_day_goes_by()

    def breaks(*_, **__):
        raise RuntimeError("the process ends here")

    with monkeypatch.context() as broken:
        broken.setattr(notifications, "summary_of", breaks)
        with pytest.raises(RuntimeError):
            notifications.write_summaries()
    assert mails() == []
    assert notifications.write_summaries() == 1
    DailySummary.objects.update(written_for="2000-01-01")  # even if the row were lost

    notifications.write_summaries()

    assert len(mails()) == 1


@pytest.mark.django_db(transaction=True)
def test_two_schedulers_at_once_write_one(ask, acme, ben, at):
    ask()
    at(ben, acme)
    a_day_goes_by()
    wrote = []

    def other():
        wrote.append(notifications.write_summaries())
        connection.close()

    with transaction.atomic():
        wrote.append(notifications.write_summaries())
        beside = threading.Thread(target=other)
        beside.start()
        waits(1)
    beside.join()

    assert sorted(wrote) == [0, 1]
    assert len(mails()) == 1


def test_long_lists_are_cut_and_say_so(ask, acme, ben, at):
    for amount in range(notifications.LINES_MAX + 3):
        ask(calls=[refund(amount + 1)])
    at(ben, acme)
    a_day_goes_by()
    notifications.write_summaries()

    [mail] = mails()
    assert mail["title"] == f"{notifications.LINES_MAX + 3} questions for you in Acme"
    assert mail["text"].count("/approvals/") == notifications.LINES_MAX
    assert "And 3 more in the inbox" in mail["text"]


@pytest.mark.django_db(transaction=True)
def test_with_a_call_that_is_erased_the_mails_that_told_of_it_are_empty(
    key, acme, ada, ben, leads, at
):
    put_in_force(acme, ada, {"policies": {"pay.*": {"approval": "MANUAL"}}})
    trip = Trip(key)
    trip.begin(tool="pay.refund", args={"amount": 100})
    at(ben, acme)
    a_day_goes_by()
    notifications.write_summaries()
    [mail] = mails()
    assert "pay.refund" in mail["text"]
    inbox.reject(Approval.objects.get(), by=ben, seen=Approval.objects.get().digest, reason="no")
    trip.send("run.failed", error={"type": "Rejected", "message": "no"})

    erase(acme, runs=["run_1"], by=ada)

    [mail] = mails()
    assert "pay.refund" not in json.dumps(mail)


def test_the_page_is_for_whoever_approves(acme, ben):
    browser = logged_in(ben)
    assert 'value="" selected' in browser.get("/w/acme/settings/summary/").text

    browser.post("/w/acme/settings/summary/", {"hour": "8"})
    page = browser.get("/w/acme/settings/summary/").text
    assert 'value="8" selected' in page
    assert "By the workspace’s clock, UTC." in page
    assert browser.post("/w/acme/settings/summary/", {"hour": "24"}).status_code == 422
    assert DailySummary.objects.get().hour == 8

    browser.post("/w/acme/settings/summary/", {"hour": ""})
    assert not DailySummary.objects.exists()
    browser.force_login(person("vic", team(acme, "guests", "view")))
    assert "permission “approve”" in browser.get("/w/acme/settings/summary/").text
    assert browser.post("/w/acme/settings/summary/", {"hour": "8"}).status_code == 403


ONE_CLICK = {"List-Unsubscribe": "One-Click"}


def test_one_click_in_the_mail_ends_it_without_a_log_in_and_nothing_else(
    ask, acme, globex, ben, cleo, at, post_office
):
    for person_, here in ((ben, acme), (cleo, acme), (ben, globex)):
        at(person_, here)
    ask(RequiredApprovers("finance", 1))
    a_day_goes_by()
    notifications.write_summaries()
    while channels.send_due():
        pass
    head, text = {one["to"][0]: (one["head"], one["text"]) for one in post_office()}[ben.email]
    head = re.sub(r"\r?\n(?=[ \t])", "", head)  # long lines are folded
    assert "List-Unsubscribe-Post: List-Unsubscribe=One-Click" in head.splitlines()
    [link] = re.findall(r"^List-Unsubscribe: +<(\S+)>\r?$", head, re.MULTILINE)
    assert link.startswith(f"{settings.AMENDS_URL}/summary/stop/")
    assert link in text
    path = link.removeprefix(settings.AMENDS_URL)
    somebody = Client(enforce_csrf_checks=True)

    looked = somebody.get(path)  # as a scanner of mails does
    assert (looked.status_code, DailySummary.objects.count()) == (200, 3)
    assert "Stop the daily summary of Acme" in looked.content.decode()
    for _ in range(2):  # a mail program may post it twice
        stopped = somebody.post(path, ONE_CLICK)
        assert stopped.status_code == 200
        assert "any more" in stopped.content.decode()
    assert not stopped.cookies, "nobody is logged in by it"

    left = set(DailySummary.objects.values_list("workspace__slug", "person__email"))
    assert left == {("acme", cleo.email), ("globex", ben.email)}
    assert somebody.get("/w/acme/settings/summary/").status_code == 302


@pytest.mark.parametrize("spoiled", ["nothing", "1.1", "1.1:AAAA"])
def test_a_link_of_another_making_stops_no_mail(acme, ben, at, spoiled):
    at(ben, acme)
    ours = notifications.stop_token(acme, ben)
    altered = [spoiled, ours[:-1] + ("A" if ours[-1] != "A" else "B"), f"1{ours}"]

    answers = [Client().post(f"/summary/stop/{one}/", ONE_CLICK).status_code for one in altered]

    assert answers == [404, 404, 404]
    assert DailySummary.objects.count() == 1
