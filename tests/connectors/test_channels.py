"""People are told: by mail, Slack-shaped webhook and signed webhook, until it has arrived."""

import json
import re
from datetime import timedelta

import pytest
from cryptography.fernet import Fernet
from django.core import mail as outbox
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone
from standardwebhooks import Webhook

from amends.protocol.vocabulary import EventType
from connectors import channels, feeds
from connectors.channels import Message
from connectors.models import ChannelKind, Delivery
from workspaces import clock
from workspaces.periodic import Turns

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NEWS = Message(
    "A compensation failed", "The refund of <b>ch_1</b> needs a person.", "http://localhost/c/1"
)


def told(delivery):
    delivery.refresh_from_db()
    return delivery.state, delivery.tries


def send_all():
    """Send what is due as often as it takes: on a busy machine a first try may end too late."""
    for _ in channels.PAUSES_SECONDS:
        channels.send_due()
        waiting = Delivery.objects.filter(state="waiting")
        if not waiting.update(next_try_at=Now() - timedelta(seconds=1)):
            return
    raise AssertionError(list(waiting.values_list("last_error", flat=True)))


def test_everybody_who_asked_for_the_subject_is_told_once(acme, ada):
    channels.create(acme, "ops", "mail", by=ada, settings={"to": ["ops@acme.example"]})
    channels.create(
        acme, "money", "mail", by=ada, settings={"to": ["cfo@acme.example"]}, subjects=["refund.*"]
    )

    for _ in range(2):
        channels.announce(acme, "step.failed", NEWS, key="step-1")
    channels.send_due()
    channels.send_due()

    [letter] = outbox.outbox
    assert letter.to == ["ops@acme.example"]
    assert letter.subject == "A compensation failed"
    assert letter.body.endswith("http://localhost/c/1\n")


def test_one_person_is_written_to_once(acme):
    for _ in range(2):
        channels.write_to(acme, "eve@x.example", "correction.published", NEWS, key="c-1")
    channels.send_due()

    assert [letter.to for letter in outbox.outbox] == [["eve@x.example"]]


def test_a_mail_that_is_sent_once_more_as_its_answer_was_lost_is_the_same_mail(acme):
    """So a mailbox that has it already may show it once."""
    for key in ("c-1", "c-2"):
        channels.write_to(acme, "eve@x.example", "correction.published", NEWS, key=key)
    for _ in range(2):
        Delivery.objects.update(state="waiting", next_try_at=Now() - timedelta(seconds=1))
        channels.send_due()

    names = [letter.message()["Message-ID"] for letter in outbox.outbox]
    assert len(names) == 4
    assert len(set(names)) == 2


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://bücher.example", "xn--bcher-kva.example"), ("http://[::1]:8000", "[::1]"),
        ("http://desk..example", "localhost"), (f"http://{'a' * 64}.example", "localhost"),
    ],
)  # fmt: skip
def test_the_name_of_a_mail_is_one_whatever_host_the_desk_has(acme, settings, url, host):
    """It was written as a word in another alphabet, which is none; or no mail left the desk."""
    settings.AMENDS_URL = url
    channels.write_to(acme, "eve@x.example", "correction.published", NEWS, key="c-1")
    channels.send_due()

    [letter] = outbox.outbox
    assert re.fullmatch(rf"<[\w.]+@{re.escape(host)}>", letter.message()["Message-ID"])


def test_a_slack_message_cannot_smuggle_in_links(acme, ada, receiver):
    channels.create(acme, "chat", "slack", by=ada, secret={"url": receiver.at["url"] + "/slack"})
    [delivery] = channels.announce(acme, "case.opened", NEWS, key="s-1")

    send_all()

    [got] = [one for one in receiver.journal.entries() if one["path"] == "/slack"]
    assert told(delivery)[0] == "sent"
    assert "&lt;b&gt;ch_1&lt;/b&gt;" in json.loads(got["body"])["text"]


@pytest.mark.parametrize("off", [timedelta(0), timedelta(hours=1), timedelta(days=-2)])
def test_a_signed_webhook_can_be_checked_by_its_receiver(acme, ada, receiver, monkeypatch, off):
    """Also where the sender's clock is off, by which it was signed: every message was refused."""
    right = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: right() + off)
    monkeypatch.setattr(clock, "_asked", {})
    secret = {"url": receiver.at["url"] + "/signed", "secret": SECRET}
    channels.create(acme, "product", "webhook", by=ada, secret=secret)
    channels.announce(acme, "correction.published", NEWS, key="w-1")

    send_all()

    got = [one for one in receiver.journal.entries() if one["path"] == "/signed"][-1]
    said = Webhook(SECRET).verify(got["body"], got["headers"])
    assert said["type"] == "correction.published"
    assert said["data"]["workspace"] == "acme"


def test_a_restored_desk_repeats_no_id_that_a_receiver_tells_a_repetition_by(acme, ada, receiver):
    away = {"url": receiver.at["url"] + "/repeats?status=503", "secret": SECRET}
    channels.create(acme, "product", "webhook", by=ada, secret=away)
    ids = []
    for key in ("lost with the backup", "said after the restore"):
        [delivery] = channels.announce(acme, "ledger.went_back", NEWS, key=key)
        for _ in range(2):
            Delivery.objects.update(next_try_at=Now() - timedelta(seconds=1))
            channels.send_due()
        ids.append((delivery.pk, mailed(acme, key)))
        Delivery.objects.all().delete()
        numbers_go_back_to(delivery.pk)

    got = [one for one in receiver.journal.entries() if one["path"] == "/repeats"]
    tries = [Webhook(SECRET).verify(one["body"], one["headers"]) and one["headers"] for one in got]
    [first, again, other, once_more] = [headers["webhook-id"] for headers in tries]
    assert (first, other) == (again, once_more), "a repetition is told"
    assert first != other, "and another message is none"
    [(number, in_mail), (number_anew, in_mail_anew)] = ids
    assert number == number_anew
    assert in_mail != in_mail_anew


def mailed(acme, key):
    """What a mail of this moment is told apart by."""
    channels.write_to(acme, "eve@x.example", "correction.published", NEWS, key=f"mail {key}")
    Delivery.objects.exclude(kind="mail").update(next_try_at=Now() + timedelta(days=1))
    channels.send_due()
    return outbox.outbox[-1].extra_headers["X-Amends-Delivery"]


def numbers_go_back_to(number):
    with connection.cursor() as cursor:
        sequence = "pg_get_serial_sequence('connectors_delivery', 'id')"
        cursor.execute(f"SELECT setval({sequence}, %s, false)", [number])


def test_a_witness_gets_each_new_head_signed_and_can_check_it(acme, ada, receiver):
    from amends.protocol.proofs import Checkpoint, LogKey
    from connectors import channels
    from ledger import desk_events, logkeys, sealer

    secret = {"url": receiver.at["url"] + "/heads", "secret": SECRET}
    everything = {"url": receiver.at["url"] + "/all", "secret": SECRET}
    channels.create(acme, "witness", "webhook", by=ada, secret=secret, subjects=["ledger.*"])
    channels.create(acme, "everything", "webhook", by=ada, secret=everything)
    desk_events.record(acme, EventType.CASE_OPENED, data={"case": 1})
    sealer.seal(acme)

    assert (feeds.send_heads(), feeds.send_heads()) == (1, 0)
    desk_events.record(acme, EventType.CASE_CLOSED, data={"case": 1})
    sealer.seal(acme)
    assert feeds.send_heads() == 1
    send_all()

    got = [one for one in receiver.journal.entries() if one["path"] in {"/heads", "/all"}]
    assert {one["path"] for one in got} == {"/heads"}
    keys = [LogKey.parse(text) for text in logkeys.published(acme)]
    said = [Webhook(SECRET).verify(one["body"], one["headers"]) for one in got]
    heads = [Checkpoint.parse(one["data"]["text"]) for one in said]
    assert all(head.check(keys) for head in heads)
    assert len({head.size for head in heads}) == 2


def test_witnesses_beyond_those_of_one_turn_have_the_next(acme, ada, receiver, monkeypatch):
    from ledger import desk_events, sealer

    monkeypatch.setattr(feeds, "WITNESSES", Turns(1))
    secret = {"url": receiver.at["url"] + "/heads", "secret": SECRET}
    for name in ("first", "second"):
        channels.create(acme, name, "webhook", by=ada, secret=secret, subjects=["ledger.*"])
    desk_events.record(acme, EventType.CASE_OPENED, data={"case": 1})
    sealer.seal(acme)

    assert [feeds.send_heads() for _ in range(3)] == [1, 1, 0]


def test_messages_are_forgotten_when_their_time_is_over(acme, ada, receiver):
    [old, young] = [
        channels.write_to(acme, "eve@example.com", "case.opened", NEWS, key=key) for key in "ab"
    ]
    waiting = channels.write_to(acme, "eve@example.com", "case.opened", NEWS, key="c")
    Delivery.objects.filter(pk__in=[old.pk, young.pk]).update(state="sent")
    Delivery.objects.filter(pk__in=[old.pk, waiting.pk]).update(
        created_at=Now() - timedelta(days=91)
    )

    assert channels.forget_old() == 1
    assert set(Delivery.objects.values_list("key", flat=True)) == {"b", "c"}


def test_a_receiver_that_is_away_is_tried_again_and_given_up_after_a_day(acme, ada, receiver):
    away = {"url": receiver.at["url"] + "/canary-away?status=503"}
    channels.create(acme, "away", "slack", by=ada, secret=away)
    [delivery] = channels.announce(acme, "case.opened", NEWS, key="a-1")

    channels.send_due()
    assert told(delivery) == ("waiting", 1)
    assert "503" in delivery.last_error
    assert channels.send_due() == 0  # not before its time

    for _ in channels.PAUSES_SECONDS:
        Delivery.objects.update(next_try_at=Now() - timedelta(seconds=1))
        channels.send_due()
    assert told(delivery) == ("failed", 1 + len(channels.PAUSES_SECONDS))


def test_a_secret_address_shows_in_no_error(acme, ada, outbound):
    secret = {"url": "http://10.0.0.1/services/canary-T0/B0"}
    channels.create(acme, "inside", "slack", by=ada, secret=secret)
    [delivery] = channels.announce(acme, "case.opened", NEWS, key="x-1")

    channels.send_due()

    delivery.refresh_from_db()
    assert delivery.state == "waiting"
    assert "canary" not in delivery.last_error


@pytest.mark.parametrize(
    ("kind", "settings", "secret"),
    [
        ("mail", {}, {}),
        ("mail", {"to": ["nobody"]}, {}),
        ("slack", {}, {"url": "ftp://x"}),
        ("webhook", {}, {"url": "https://x.example", "secret": ""}),
        ("pigeon", {}, {"url": "https://x.example"}),
    ],
)
def test_a_channel_that_could_not_send_is_not_made(acme, ada, kind, settings, secret):
    with pytest.raises(channels.BadChannel):
        channels.create(acme, "x", kind, by=ada, settings=settings, secret=secret)


def test_a_receiver_that_is_away_is_asked_once_a_turn_and_holds_up_nobody(acme, ada, receiver):
    for name in ("away", "here"):
        path = "/turn-away?status=503" if name == "away" else "/turn-here"
        channels.create(acme, name, "slack", by=ada, secret={"url": receiver.at["url"] + path})
    for number in range(3):
        channels.announce(acme, "case.opened", NEWS, key=f"t-{number}")

    assert channels.send_due() == 4

    asked = [one["path"] for one in receiver.journal.entries() if "/turn-" in one["path"]]
    assert sorted(asked) == ["/turn-away", "/turn-here", "/turn-here", "/turn-here"]
    assert Delivery.objects.filter(state="waiting", tries=0).count() == 2


def test_a_receiver_that_took_nothing_lately_comes_after_all_others(acme, ada, receiver):
    """A hundred that hang for ten seconds each held up who is asked for an approval by mail."""
    for name, path in (("away", "/late-away?status=503"), ("here", "/late-here")):
        channels.create(acme, name, "slack", by=ada, secret={"url": receiver.at["url"] + path})
    channels.announce(acme, "case.opened", NEWS, key="l-0")
    channels.send_due()
    channels.announce(acme, "case.opened", NEWS, key="l-1")
    for name, ago in (("away", 9), ("here", 1)):
        waiting = Delivery.objects.filter(state="waiting", channel__name=name)
        waiting.update(next_try_at=Now() - timedelta(seconds=ago))

    assert channels.send_due() == 2

    asked = [one["path"] for one in receiver.journal.entries() if "/late-" in one["path"]]
    assert asked[2:] == ["/late-here", "/late-away"]


def test_a_secret_that_no_key_opens_holds_up_no_other_and_is_told(acme, ada, receiver, settings):
    held = settings.AMENDS_SECRET_KEYS
    settings.AMENDS_SECRET_KEYS = [Fernet.generate_key().decode()]
    channels.create(acme, "lost", "slack", by=ada, secret={"url": receiver.at["url"] + "/slack"})
    settings.AMENDS_SECRET_KEYS = held
    [lost] = channels.announce(acme, "case.opened", NEWS, key="s-1")
    mail = channels.write_to(acme, "eve@x.example", "case.opened", NEWS, key="m-1")

    channels.send_due()

    assert (told(lost), told(mail)) == (("waiting", 1), ("sent", 1))
    assert lost.last_error == "CannotOpen: no key of AMENDS_SECRET_KEYS opens this secret"


def test_one_message_is_claimed_at_a_time_whatever_plan_the_database_makes(acme, ada, receiver):
    """It may ask for the one that is due anew for each row that it looks at."""
    channels.create(acme, "here", "slack", by=ada, secret={"url": receiver.at["url"] + "/planned"})
    for number in range(3):
        channels.announce(acme, "case.opened", NEWS, key=f"p-{number}")
    with connection.cursor() as cursor:
        for way in ("hashjoin", "mergejoin", "hashagg", "sort", "material", "memoize"):
            cursor.execute(f"SET LOCAL enable_{way} = off")

    assert channels.send_due() == 3

    assert not Delivery.objects.exclude(state="sent").exists()


def test_a_mail_server_that_is_away_is_asked_once_a_turn(acme, settings):
    settings.EMAIL_BACKEND = channels.SMTP
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 9  # discard: nobody listens there
    for number in range(3):
        channels.write_to(acme, f"p{number}@x.example", "case.opened", NEWS, key=f"m-{number}")

    assert channels.send_due() == 1


def test_every_kind_of_channel_has_its_way_out():
    assert set(channels.KINDS) == set(ChannelKind.values)
