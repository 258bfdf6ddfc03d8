"""The log pushed to a SIEM: every entry, whatever dies on the way."""

import json
import time
from datetime import timedelta

import pytest
from cryptography.fernet import Fernet
from django.db import connection
from django.db.models.functions import Now
from standardwebhooks import Webhook

from amends.protocol.vocabulary import EventType
from connectors import channels, feeds
from connectors.models import Feed
from ledger import desk_events, proofs, sealer
from ledger.models import Leaf
from tests.connectors.test_channels import SECRET

pytestmark = pytest.mark.django_db(transaction=True)
WAIT_SECONDS_MAX = 90


@pytest.fixture
def make_feed(acme, ada, receiver):
    """A channel whose receiver listens at this path."""

    def make(path):
        secret = {"url": receiver.at["url"] + path, "secret": SECRET}
        return channels.create(
            acme, "siem", "webhook", by=ada, secret=secret, subjects=[feeds.SUBJECT]
        )

    return make


def happens(acme, times):
    for number in range(times):
        desk_events.record(acme, EventType.CASE_OPENED, data={"case": number})
    sealer.seal(acme)


def got_at(receiver, path):
    """What arrived there, each checked against the secret."""
    got = [one for one in receiver.journal.entries() if one["path"] == path]
    return [Webhook(SECRET).verify(one["body"], one["headers"])["data"] for one in got]


def numbers(batches):
    return [one["index"] for batch in batches for one in batch["entries"]]


def test_every_entry_is_pushed_in_order_and_signed(acme, make_feed, receiver, monkeypatch):
    monkeypatch.setattr(feeds, "BATCH", 2)
    make_feed("/siem")
    happens(acme, 5)

    feeds.send_all()
    happens(acme, 1)
    feeds.send_all()
    feeds.send_all()

    head = proofs.newest_head(acme)
    batches = got_at(receiver, "/siem")
    assert numbers(batches) == list(range(head.size))
    assert {one["origin"] for one in batches} == {head.origin}
    assert all(one["next"] == one["first"] + len(one["entries"]) for one in batches)


def test_of_a_log_that_was_cut_off_each_new_number_is_pushed(acme, make_feed, receiver):
    make_feed("/siem-cut")
    happens(acme, 5)
    feeds.send_all()
    Leaf.objects.filter(workspace=acme, index__gte=3).delete()

    happens(acme, 4)
    feeds.send_all()

    before, *after = got_at(receiver, "/siem-cut")
    assert before["origin"] != after[0]["origin"]
    assert numbers(after) == list(range(3, proofs.newest_head(acme).size))


def test_what_is_not_taken_waits_and_nothing_is_skipped(acme, make_feed, receiver, ada, client):
    channel = make_feed("/siem-later")
    secret = channel.secret
    happens(acme, 3)
    url = channel.secret.open()["url"]
    channel.secret = type(secret).objects.seal(
        acme, "nobody", {"url": "http://127.0.0.1:1/", "secret": SECRET}
    )
    channel.save()

    assert feeds.send_all() == 0
    feed = Feed.objects.get()
    assert (feed.failures, feed.number) == (1, 0)
    assert SECRET not in feed.error
    assert feeds.send_all() == 0  # not before its time

    channel.secret = type(secret).objects.seal(acme, "there", {"url": url, "secret": SECRET})
    channel.save()
    Feed.objects.update(due_at=Now())
    feeds.send_all()
    assert numbers(got_at(receiver, "/siem-later")) == list(range(proofs.newest_head(acme).size))


def test_a_restored_log_that_goes_on_under_its_name_repeats_no_id_for_other_entries(
    acme, make_feed, receiver, settings
):
    """No head was kept outside, so that nothing tells that the log went back."""
    settings.AMENDS_HEADS_FOLDER = ""
    make_feed("/siem-restored")
    happens(acme, 3)
    before = proofs.newest_head(acme).size
    feeds.send_all()
    happens(acme, 2)
    taken_at = Feed.objects.get().number
    feeds.send_all()

    log_goes_back_to(before)
    Feed.objects.update(number=taken_at, due_at=Now())
    happens(acme, 2)
    feeds.send_all()

    got = [one for one in receiver.journal.entries() if one["path"] == "/siem-restored"]
    _, lost, anew = [(json.loads(one["body"])["data"], one["headers"]) for one in got]
    assert (lost[0]["origin"], lost[0]["first"], lost[0]["next"]) == (
        anew[0]["origin"], anew[0]["first"], anew[0]["next"],
    )  # fmt: skip
    assert lost[0]["entries"] != anew[0]["entries"]
    assert lost[1]["webhook-id"] != anew[1]["webhook-id"]


def log_goes_back_to(size):
    with connection.cursor() as cursor:
        for forgotten in (
            "ledger_leaf WHERE index >= %s",
            "ledger_treenode WHERE (index + 1) << level > %s",
            "ledger_treehead WHERE size > %s",
        ):
            cursor.execute(f"DELETE FROM {forgotten}", [size])
    sealer._last.clear()


def test_a_feed_whose_secret_no_key_opens_holds_up_no_other_and_tells_it(
    acme, make_feed, receiver, ada, settings
):
    held = settings.AMENDS_SECRET_KEYS
    settings.AMENDS_SECRET_KEYS = [Fernet.generate_key().decode()]
    secret = {"url": receiver.at["url"] + "/siem-lost", "secret": SECRET}
    lost = channels.create(acme, "lost", "webhook", by=ada, secret=secret, subjects=[feeds.SUBJECT])
    settings.AMENDS_SECRET_KEYS = held
    make_feed("/siem-beside")
    happens(acme, 1)

    feeds.send_all()

    assert numbers(got_at(receiver, "/siem-beside"))
    assert "no key of AMENDS_SECRET_KEYS opens this secret" in Feed.objects.get(channel=lost).error


def test_feeds_beyond_those_of_one_turn_have_the_next(acme, make_feed, receiver, ada, monkeypatch):
    monkeypatch.setattr(feeds, "FEEDS_MAX", 1)
    make_feed("/siem-first")
    secret = {"url": receiver.at["url"] + "/siem-second", "secret": SECRET}
    channels.create(acme, "second", "webhook", by=ada, secret=secret, subjects=[feeds.SUBJECT])
    happens(acme, 1)

    feeds.send_all()
    feeds.send_all()

    assert got_at(receiver, "/siem-first")
    assert got_at(receiver, "/siem-second")


def test_a_feed_that_fails_comes_after_all_others_however_many_they_are(
    acme, make_feed, receiver, ada, monkeypatch
):
    away = make_feed("/order-away?status=503")
    secret = {"url": receiver.at["url"] + "/order-here", "secret": SECRET}
    channels.create(acme, "second", "webhook", by=ada, secret=secret, subjects=[feeds.SUBJECT])
    happens(acme, 1)
    feeds.send_all()
    Feed.objects.filter(channel=away).update(due_at=Now() - timedelta(hours=1))
    happens(acme, 1)
    monkeypatch.setattr(feeds, "FEEDS_MAX", 1)

    feeds.send_all()

    asked = [one["path"] for one in receiver.journal.entries() if "/order-" in one["path"]]
    assert asked[2:] == ["/order-here", "/order-away"]


def test_a_batch_whose_sender_died_comes_again_and_each_number_once_after_comparing(
    acme, make_feed, receiver, processes
):
    """kill -9 of the scheduler in the middle of a long feed, twice."""
    make_feed("/siem-kill")
    happens(acme, 3 * feeds.BATCH)
    allowed = {"AMENDS_OUTBOUND_ALLOW": "127.0.0.1"}
    for batches in (1, 2):
        scheduler = processes.scheduler(**allowed)
        arrives(lambda wanted=batches: len(got_at(receiver, "/siem-kill")) >= wanted)
        scheduler.kill()
        happens(acme, feeds.BATCH)
    processes.scheduler(**allowed)

    size = proofs.newest_head(acme).size
    arrives(lambda: set(numbers(got_at(receiver, "/siem-kill"))) >= set(range(size)))
    by_number: dict[int, str] = {}
    for batch in got_at(receiver, "/siem-kill"):
        for one in batch["entries"]:
            assert by_number.setdefault(one["index"], json.dumps(one)) == json.dumps(one)
    assert sorted(by_number)[:size] == list(range(size))


def arrives(holds):
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)
