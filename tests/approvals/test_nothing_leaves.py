"""A card, an account and a token that an agent put wherever it could: they are in no mail, in no
message of a channel however much it may tell, in no entry that a SIEM is sent, in no log line, on
no page, not even where somebody looks for their beginning, and in no title."""

import json
import logging
import re
from typing import Any

import pytest

from approvals import inbox
from approvals.models import Approval
from connectors import channels, feeds
from ledger import sealer
from tests.approvals.cast import put_in_force
from tests.approvals.door import Agent as Trip
from tests.approvals.test_notifications import SECRET, half_time_is_over, receiver, send_all
from tests.people import logged_in

__all__ = ["receiver"]
pytestmark = pytest.mark.django_db(transaction=True)
CARD, IBAN, TOKEN = "4111 1111 1111 1111", "DE89370400440532013000", "canary-token-93"
PLANTED = (CARD, CARD.replace(" ", ""), CARD.replace(" ", "-"), IBAN, TOKEN, "canary-ssn")
SAID = f"charge {CARD}"


def test_what_is_masked_is_told_to_nobody(
    key: str, acme: Any, ada: Any, ben: Any, receiver: Any, post_office: Any, caplog: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    rule = {"approval": "MANUAL", "risk": "HIGH", "askAffected": True}
    put_in_force(acme, ada, {"policies": {"pay.*": rule}, "audit": {"mask": ["args.ssn"]}})
    at = receiver.at["url"]
    for kind, more in (("slack", {}), ("webhook", {"secret": SECRET})):
        secret = {"url": f"{at}/{kind}", **more}
        channels.create(acme, kind, kind, by=ada, secret=secret, tier="headline")
    heard = {"url": f"{at}/siem", "secret": SECRET}
    channels.create(acme, "siem", "webhook", by=ada, secret=heard, subjects=[feeds.SUBJECT])
    trip = Trip(key)
    eve = {"id": "eve", "name": f"Eve {CARD}", "contact": "eve@example.com"}
    trip.send("run.started", request=SAID, goal=SAID, on_behalf_of=eve)
    trip.send("run.checkpoint", name="begun", state={"authorization": TOKEN})

    answer = trip.begin(
        tool="pay.charge", args={"card": CARD, "iban": IBAN, "token": TOKEN, "ssn": "canary-ssn",
                                 "nested": [{"note": f"by {CARD}."}]},
        before=[{"iban": IBAN, "cvv": 737}], targets=[{"type": "card", "id": "tok_1"}],
    )  # fmt: skip
    assert answer.json()["answer"] == "wait"
    approval = Approval.objects.get()
    half_time_is_over(approval)
    inbox.grant(approval, by=ben, seen=approval.digest, reason="checked")
    sealer.seal(acme)
    send_all()
    feeds.send_all()

    browser = logged_in(ben)
    shown = [browser.get(f"/w/acme/{path}").content.decode() for path in (
        f"approvals/{approval.pk}/", "approvals/", "find/?q=4111", "runs/?q=DE89", "runs/run_1/",
    )]  # fmt: skip
    titles = [re.findall("<title>(.*?)</title>", page, re.DOTALL) for page in shown]
    letters, posted = post_office(), receiver.journal.entries()
    assert letters
    assert {one["path"] for one in posted} >= {"/slack", "/webhook", "/siem"}
    for where in (letters, posted, caplog.text, titles, shown):
        told = json.dumps(where)
        assert [one for one in PLANTED if one in told] == []
