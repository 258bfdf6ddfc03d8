"""A new critical case and a compensation that failed are told by mail, chat and signed webhook."""

import json

import pytest
from standardwebhooks import Webhook

from connectors import channels
from connectors.models import Delivery
from recovery.triage import triage
from tests.connectors import conftest as connectors
from tests.crash.oracle import until

outsides = connectors.outsides
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def deletes_the_site(begin_run, run="run_1"):
    """Nothing is more critical, and it went past the gate."""
    run = begin_run(run)
    run.does("repos.delete", ("repository", "acme/site", {"stars": 7}, None))
    run.ends("failed")
    return run


@pytest.fixture
def pager(acme, ada):
    to = {"to": ["oncall@acme.example"]}
    return channels.create(acme, "pager", "mail", by=ada, settings=to, subjects=["case.critical"])


@pytest.mark.django_db(transaction=True)
def test_people_are_told_by_mail_chat_and_signed_webhook(
    processes, outsides, acme, ada, pager, begin_run
):
    mail, receiver = outsides("mail"), outsides("receiver")
    url = receiver.at["url"]
    channels.create(acme, "chat", "slack", by=ada, secret={"url": f"{url}/chat"})
    channels.create(
        acme, "product", "webhook", by=ada, secret={"url": f"{url}/hook", "secret": SECRET}
    )
    processes.scheduler(
        EMAIL_HOST="127.0.0.1",
        EMAIL_PORT=str(mail.at["port"]),
        AMENDS_OUTBOUND_ALLOW="127.0.0.1",
    )

    deletes_the_site(begin_run)

    arrived = Delivery.objects.filter(state="sent")
    until(lambda: arrived.count() == 3, 240, "three messages are sent")  # two pauses and more
    [letter] = mail.journal.entries()
    assert letter["to"] == ["oncall@acme.example"]
    assert (
        letter["subject"]
        .strip()
        .startswith("Critical: Agent “ticket-desk” deleted repository acme/site")
    )
    got = {one["path"]: one for one in receiver.journal.entries()}
    assert "/w/acme/cases/" in json.loads(got["/chat"]["body"])["text"]
    said = Webhook(SECRET).verify(got["/hook"]["body"], got["/hook"]["headers"])
    assert said["type"] == "case.critical"
    assert "stars" not in letter["text"] + got["/chat"]["body"] + got["/hook"]["body"]


def test_a_case_is_told_once_each_time_it_opens(begin_run, pager, raised):
    raised.case()
    run = deletes_the_site(begin_run, "run_2")
    run.case()
    run.send("run.failed", error={"type": "Other", "message": "again"})
    run.case()

    [told] = Delivery.objects.all()
    assert told.message["title"].startswith("Critical:")


def test_the_sum_at_stake_is_told_where_the_channel_may_tell_amounts(begin_run, acme, ada, pager):
    url = "https://chat.example/hook"
    channels.create(acme, "lead", "slack", by=ada, secret={"url": url}, tier="headline")
    case = deletes_the_site(begin_run).case()
    Delivery.objects.all().delete()
    case.headline += ", $214.00 at stake"

    triage.alarm(case)

    titles = {one.channel.name: one.message["title"] for one in Delivery.objects.all()}
    assert titles["lead"] == f"{titles['pager']}, $214.00 at stake"
    assert "$" not in titles["pager"]


def test_a_flood_of_critical_cases_rings_a_bounded_number_of_times(begin_run, pager):
    for number in range(triage.ALARMS_ALONE_MAX + 5):
        deletes_the_site(begin_run, f"run_f{number}").case()

    titles = list(Delivery.objects.order_by("pk").values_list("message__title", flat=True))
    assert len(titles) == triage.ALARMS_ALONE_MAX + 1
    assert titles[-1] == "There are more critical cases"
