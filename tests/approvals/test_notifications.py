"""People are told: that they are asked, that half of the time is over, and how it ended."""

import json
import re
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db.models.functions import Now
from django.test import Client
from standardwebhooks import Webhook

from approvals import call_context, inbox, notifications, periodic
from approvals.models import Approval, ApprovalState, NotificationKind, NotificationRecord
from approvals.policy import RequiredApprovers
from connectors import channels
from connectors.models import Delivery
from ledger import replaying
from ledger.models import Event
from tests.approvals.cast import refund, told
from tests.people import logged_in, person
from workspaces.periodic import Turns

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
LINK = re.compile(r"https?://\S+")
CANARY = "canary-4421"


def send_all():
    while channels.send_due():
        pass
    notifications.note_due()


def test_of_what_waits_to_be_sent_a_turn_looks_at_some_and_the_next_goes_on(
    ask, ben, post_office, monkeypatch
):
    """While a mail server is away thousands wait, and each turn read them all."""
    monkeypatch.setattr(notifications, "LOOKED_AT", Turns(2))
    for _ in range(5):
        ask(RequiredApprovers("finance", 1))
    last = NotificationRecord.objects.latest("pk")
    Delivery.objects.filter(pk=last.delivery_id).update(state="sent", sent_at=Now())

    assert [notifications.note_due() for _ in range(4)] == [0, 0, 1, 0]

    assert NotificationRecord.objects.exclude(noted_at=None).get() == last


def half_time_is_over(approval):
    Approval.objects.filter(pk=approval.pk).update(remind_at=Now() - timedelta(seconds=1))
    periodic.remind_due()


@pytest.fixture
def receiver(outsides, settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    return outsides("receiver")


def test_those_who_may_decide_are_written_to_and_nobody_else(ask, ada, ben, cleo, dev, post_office):
    approval = ask(RequiredApprovers("finance", 1))

    send_all()

    [letter] = post_office()
    assert letter["to"] == [ben.email]
    assert f"/w/acme/approvals/{approval.pk}/" in letter["text"]
    assert "decides nothing" in letter["text"]
    assert [(one.to, one.about) for one in approval.told.all()] == [(ben.email, "requested")]


def test_letters_about_alike_questions_say_which_each_is_about(ask, ben, post_office):
    asked = [ask(RequiredApprovers("finance", 1)) for _ in range(3)]

    send_all()

    letters = post_office()
    assert len({letter["subject"] for letter in letters}) == 3
    for approval in asked:
        [letter] = [one for one in letters if f"/approvals/{approval.pk}/" in one["text"]]
        assert letter["subject"].endswith(f"high risk (no. {approval.pk})")
        assert f"question {approval.pk}." in letter["text"]


def test_no_argument_leaves_by_mail_nor_what_an_agent_wrote(ask, ben, post_office):
    call = refund()
    call.args["card"] = CANARY
    approval = ask(calls=[call])
    Approval.objects.filter(pk=approval.pk).update(
        headline=f"Refund {CANARY}", agent_text={"goal": CANARY}
    )
    approval.refresh_from_db()

    half_time_is_over(approval)
    inbox.reject(approval, by=ben, seen=approval.digest, reason=f"{CANARY} is not theirs")
    send_all()

    letters = post_office()
    assert len(letters) == 3  # asked, reminded, and the end to Ada
    assert CANARY not in json.dumps(letters)


def test_a_mail_names_the_rule_that_asks_and_none_that_asks_nobody(ask, ben, post_office):
    """Of a plan it said *put back without asking*, too, to whoever it asked."""
    approval = ask()
    rules = [{"words": "rows go back unasked", "approval": "AUTO"}]
    rules += [{"words": "one of finance looks", "approval": "MANUAL"}]
    Approval.objects.filter(pk=approval.pk).update(rules=rules)
    approval.refresh_from_db()

    half_time_is_over(approval)
    send_all()

    reminder = post_office()[-1]["text"]
    assert re.findall(r"Rule: [\w ]+", reminder) == ["Rule: one of finance looks"]


def test_at_half_time_only_those_are_reminded_who_can_still_answer(
    ask, ben, cleo, acme, post_office
):
    approval = ask(RequiredApprovers("finance", 1), RequiredApprovers("leads", 1))
    inbox.grant(approval, by=ben, seen=approval.digest)
    send_all()
    before = len(post_office())

    half_time_is_over(approval)
    half_time_is_over(approval)
    send_all()

    assert [one["to"] for one in post_office()[before:]] == [[cleo.email]]
    assert "Still waiting" in post_office()[-1]["subject"]


def test_where_nobody_is_left_to_answer_the_reminder_says_so(ask, ben, acme, ada, post_office):
    channels.create(acme, "ops", "mail", by=ada, settings={"to": ["ops@acme.example"]})
    approval = ask(RequiredApprovers("finance", 1))
    ben.is_active = False
    ben.save()

    half_time_is_over(approval)
    send_all()

    letter = post_office()[-1]
    assert letter["to"] == ["ops@acme.example"]
    assert letter["subject"].startswith("Nobody can answer: ")
    assert "somebody has to join a team" in letter["text"]


def test_that_nobody_is_left_in_one_of_two_teams_is_said_though_the_other_has_enough(
    ask, ben, cleo, leads, post_office
):
    dora = person("dora", leads)
    approval = ask(RequiredApprovers("finance", 1), RequiredApprovers("leads", 1))
    card = logged_in(cleo).get(f"/w/acme/approvals/{approval.pk}/")
    assert "Nobody can complete this." not in card.text
    ben.groups.clear()

    half_time_is_over(approval)
    send_all()

    assert {one["to"][0] for one in post_office()[-2:]} == {cleo.email, dora.email}
    assert all(one["subject"].startswith("Nobody can answer: ") for one in post_office()[-2:])
    card = logged_in(cleo).get(f"/w/acme/approvals/{approval.pk}/")
    assert "Nobody can complete this." in card.text


@pytest.mark.parametrize("end", ["granted", "rejected", "expired", "withdrawn"])
def test_whoever_asked_is_told_the_end(ask, ada, ben, end, post_office):
    approval = ask()
    if end == "granted":
        inbox.grant(approval, by=ben, seen=approval.digest)
    elif end == "rejected":
        inbox.reject(approval, by=ben, seen=approval.digest, reason="the wrong card")
    elif end == "withdrawn":
        inbox.withdraw(approval, by=ben, reason="asked again tomorrow")
    else:
        Approval.objects.update(expires_at=Now() - timedelta(seconds=1))
        periodic.expire_due()
    send_all()

    [letter] = [one for one in post_office() if one["to"] == [ada.email]]
    word = {"granted": "Approved"}.get(end, end.capitalize())
    assert letter["subject"].startswith(f"{word}: ")


@pytest.mark.parametrize(
    ("people", "answered", "words"),
    [
        (1, 0, "nobody answered in time"),
        (2, 1, "not everybody who had to agree did so in time"),
        (1, 1, "it was approved, and not used in time"),
    ],
)
def test_what_expired_is_told_by_what_did_not_come_in_time(
    ask, ada, ben, people, answered, words, post_office, django_assert_num_queries
):
    """That nobody had answered was said of one to which somebody had said yes."""
    approval = ask(RequiredApprovers("finance", people))
    for _ in range(answered):
        inbox.grant(approval, by=ben, seen=approval.digest)
    Approval.objects.update(expires_at=Now() - timedelta(seconds=1))
    periodic.expire_due()
    send_all()

    letter = [one for one in post_office() if one["to"] == [ada.email]][-1]
    [read] = Approval.objects.select_related("closed_by").prefetch_related("decisions")
    with django_assert_num_queries(0):  # a list asks once for all
        assert call_context.ended(read) == f"Expired: {words}."
    card = logged_in(ben).get(f"/w/acme/approvals/{approval.pk}/").text
    assert f"It expired: {words}." in letter["text"]
    assert f"Expired: {words}." in card


def test_who_does_not_want_mail_gets_none(ask, ben, cleo, post_office):
    ben.mail_approvals = False
    ben.save()

    ask()
    send_all()

    assert [one["to"] for one in post_office()] == [[cleo.email]]


def test_a_channel_hears_as_much_as_its_tier_allows(ask, ben, acme, ada, receiver):
    before = len(receiver.journal.entries())
    for name, tier in (("quiet", "outline"), ("open", "headline")):
        url = f"{receiver.at['url']}/tier-{name}"
        channels.create(acme, name, "slack", by=ada, secret={"url": url}, tier=tier)

    approval = ask()
    send_all()

    got = {one["path"]: one["body"] for one in receiver.journal.entries()[before:]}
    assert approval.headline in got["/tier-open"]
    assert "charged twice" in got["/tier-open"]
    assert approval.headline not in got["/tier-quiet"]
    assert "charged twice" not in got["/tier-quiet"]
    assert "a plan of 1 call for case 12" in got["/tier-quiet"]


def test_a_signed_webhook_tells_the_product_how_it_ended(ask, ben, acme, ada, receiver):
    before = len(receiver.journal.entries())
    secret = {"url": f"{receiver.at['url']}/ends", "secret": SECRET}
    channels.create(acme, "product", "webhook", by=ada, secret=secret, subjects=["approval.ended"])
    approval = ask()
    inbox.reject(approval, by=ben, seen=approval.digest, reason="the wrong card")

    send_all()

    [got] = receiver.journal.entries()[before:]
    said = Webhook(SECRET).verify(got["body"], got["headers"])
    assert said["type"] == "approval.ended"
    assert said["data"]["facts"]["approval"] == str(approval.pk)
    assert said["data"]["facts"]["state"] == "rejected"
    assert said["data"]["facts"]["digest"] == f"sha256:{approval.digest}"
    assert said["data"]["facts"]["kind"] == "plan"
    assert said["data"]["facts"]["plan"] == str(approval.plan_id)
    assert "args" not in got["body"]


@pytest.mark.parametrize("end", ["withdrawn", "expired"])
def test_that_a_yes_which_was_told_is_one_no_more_is_told_too(ask, ben, acme, ada, receiver, end):
    before = len(receiver.journal.entries())
    secret = {"url": f"{receiver.at['url']}/ends", "secret": SECRET}
    channels.create(acme, "product", "webhook", by=ada, secret=secret, subjects=["approval.ended"])
    approval = ask()
    inbox.grant(approval, by=ben, seen=approval.digest)
    if end == "withdrawn":
        inbox.withdraw(approval, by=ben, reason="too early")
    Approval.objects.update(expires_at=Now() - timedelta(seconds=1))
    periodic.expire_due()

    send_all()

    got = [json.loads(one["body"])["data"] for one in receiver.journal.entries()[before:]]
    assert [one["facts"]["state"] for one in got] == ["granted", end]
    assert NotificationRecord.objects.filter(about="ended", person=ada).count() == 2


def test_who_was_told_and_whether_it_arrived_is_on_the_record_and_on_the_card(
    ask, ben, acme, ada, post_office
):
    channels.create(acme, "ops", "mail", by=ada, settings={"to": ["nobody@acme.example"]})
    approval = ask()
    Delivery.objects.filter(channel__name="ops").update(tries=len(channels.PAUSES_SECONDS))

    send_all()
    notifications.note_due()

    said = {one.get("channel") or one["person"]: one for one in told(acme, "approval.told")}
    assert said[ben.pk]["arrived"]
    assert (said[ben.pk]["about"], said[ben.pk]["way"]) == ("requested", "mail")
    assert said["ops"]["arrived"] is None  # the mail server refused the mailbox
    assert len(told(acme, "approval.told")) == 2
    browser = logged_in(ben)
    shown = browser.get(f"/w/acme/approvals/{approval.pk}/").content.decode()
    assert "Who was told (2)" in shown
    assert "not delivered" in shown
    events = Event.objects.filter(workspace=acme, type="approval.told")
    assert sorted(replaying.words_of(one) for one in events) == [
        "Could not tell people that they are asked", "Told people that they are asked",
    ]  # fmt: skip


def test_there_are_words_for_whatever_a_message_is_about():
    assert set(replaying.TOLD) == set(NotificationKind)


def test_a_mail_server_that_is_away_holds_nobody_up_and_gets_it_later(
    ask, ben, acme, post_office, settings
):
    port, settings.EMAIL_PORT = settings.EMAIL_PORT, 9  # discard: nobody listens there
    approval = ask()
    send_all()
    assert post_office() == []
    assert told(acme, "approval.told") == []

    settings.EMAIL_PORT = port
    Delivery.objects.update(next_try_at=Now() - timedelta(seconds=1))
    send_all()

    assert [one["to"] for one in post_office()] == [[ben.email]]
    [said] = told(acme, "approval.told")
    assert said["tries"] == 2
    approval.refresh_from_db()
    assert approval.state == ApprovalState.WAITING


def test_a_scanner_that_opens_every_link_in_every_mail_decides_nothing(
    ask, ada, ben, cleo, post_office
):
    """As mail gateways do: logged in as the reader, each link, and every link on those pages."""
    approvals = [ask(), ask(RequiredApprovers("finance", 1), RequiredApprovers("leads", 1)), ask()]
    inbox.grant(approvals[2], by=ben, seen=approvals[2].digest)
    half_time_is_over(approvals[0])
    send_all()
    before = list(Approval.objects.order_by("pk").values_list("pk", "state"))
    scanners: dict[Any, Client] = {}
    opened: set[tuple[Any, str]] = set()

    for letter in post_office():
        reader = {one.email: one for one in (ada, ben, cleo)}[letter["to"][0]]
        if reader not in scanners:
            scanners[reader] = Client()
            scanners[reader].force_login(reader)
        for link in LINK.findall(letter["text"]):
            _open_all(scanners[reader], urlsplit(link).path, opened, reader)

    assert len(opened) > 20
    assert list(Approval.objects.order_by("pk").values_list("pk", "state")) == before
    assert approvals[0].decisions.count() == 0


def _open_all(scanner, path, opened, reader):
    """The page, and what it links to; what each reader's scanner has opened it opens no more."""
    page = scanner.get(path)
    assert page.status_code == 200
    text = page.content.decode()
    links = set(re.findall(r'(?:href|action|formaction)="(/[^"#]*)"', text))
    links -= {one for one in links if one.startswith("/static/")}
    for link in links - {link for one, link in opened if one == reader}:
        assert scanner.get(link).status_code in {200, 302, 404, 405}
        assert scanner.head(link).status_code in {200, 302, 404, 405}
    opened |= {(reader, link) for link in {path, *links}}


def test_the_same_end_is_told_once_however_often_it_is_swept(ask, ben, post_office):
    ask()
    Approval.objects.update(expires_at=Now() - timedelta(seconds=1))
    for _ in range(3):
        periodic.expire_due()
        send_all()

    assert NotificationRecord.objects.filter(about="ended").count() == 1


def test_hidden_characters_reach_no_mailbox_unseen(ask, ben, acme, ada, receiver):
    before = len(receiver.journal.entries())
    secret = {"url": f"{receiver.at['url']}/hidden"}
    channels.create(acme, "chat", "slack", by=ada, secret=secret, tier="headline")
    approval = ask()
    Approval.objects.filter(pk=approval.pk).update(headline="Pay \u202e0001 EUR")
    approval.refresh_from_db()

    half_time_is_over(approval)
    send_all()

    bodies = [json.loads(one["body"])["text"] for one in receiver.journal.entries()[before:]]
    assert any("⟦U+202E⟧" in text for text in bodies)
    assert not any("\u202e" in text for text in bodies)


def test_a_large_team_is_not_flooded(ask, finance, acme):
    for number in range(notifications.PEOPLE_MAX + 3):
        person(f"p{number}", finance)

    approval = ask()

    assert approval.told.filter(person__isnull=False).count() == notifications.PEOPLE_MAX
