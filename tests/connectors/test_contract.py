"""One contract test over every connector, each on its real system."""

import uuid

import httpx
import psycopg
import pytest

from connectors import registry
from connectors.conformance import PROMISES, Trial
from connectors.contract import Target
from tests.connectors.test_caldav import EVENING, MORNING, ics
from tests.connectors.test_http import CARD
from tests.connectors.test_sql import HIGH, NORMAL


@pytest.fixture
def sql_trial(shop_connection, shop, shop_url):
    def arrange():
        shop.execute("DROP TABLE IF EXISTS amends_marker; DELETE FROM tickets")
        shop.execute(
            "INSERT INTO tickets (world, id, priority, assignee, price, tags)"
            " VALUES ('live', 'T-1', 'high', 'mia', 12.5, '{\"a\": [2], \"b\": 1}')"
        )

    def disturb():
        shop.execute("UPDATE tickets SET assignee = 'zoe'")

    def effects():
        with psycopg.connect(shop_url) as session:
            rows = session.execute("SELECT FROM tickets WHERE priority = 'normal'")
            return rows.rowcount

    return Trial(
        connector=registry.get("sql"),
        operation="restore_row",
        settings=shop_connection.settings,
        credential=shop_connection.compensate_secret.open(),
        target=Target("ticket", "live/T-1"),
        args={"to": NORMAL},
        expected=HIGH,
        arrange=arrange,
        effects=effects,
        disturb=disturb,
        unreachable={"database": "no_such_database"},
    )


@pytest.fixture
def smtp_trial(mail, mail_connection):
    subject = f"Correction {uuid.uuid4()}"
    return Trial(
        connector=registry.get("smtp"),
        operation="send_correction",
        settings=mail_connection.settings,
        credential=mail_connection.compensate_secret.open(),
        target=Target("mail", "<orig@acme.example>"),
        args={"subject": subject, "text": "Please disregard it."},
        expected={"to": "eve@other.example"},
        arrange=lambda: None,
        effects=lambda: sum(one["subject"] == subject for one in mail.journal.entries()),
        unreachable={"port": 9},
        key=subject,
    )


@pytest.fixture
def webhook_trial(licences, licence_connection):
    seat = f"L-{uuid.uuid4()}"
    base = licences.at["url"].removesuffix("/amends")
    return Trial(
        connector=registry.get("webhook"),
        operation="release_licence",
        settings=licence_connection.settings,
        credential=licence_connection.compensate_secret.open(),
        target=Target("licence", seat),
        expected={"holder": "eve"},
        arrange=lambda: httpx.post(f"{base}/hold", json={"id": seat, "holder": "eve"}),
        effects=lambda: sum(one["released"] == seat for one in licences.journal.entries()),
        disturb=lambda: httpx.post(f"{base}/hold", json={"id": seat, "holder": "zoe"}),
        unreachable={"url": "http://127.0.0.1:9/"},
        key=seat,
    )


@pytest.fixture
def caldav_trial(calendar, calendar_connection):
    uid = f"contract-{uuid.uuid4()}"

    def put(state):
        calendar.put(f"{uid}.ics", content=ics(uid, state)).raise_for_status()

    return Trial(
        connector=registry.get("caldav"),
        operation="restore_event",
        settings=calendar_connection.settings,
        credential=calendar_connection.compensate_secret.open(),
        target=Target("event", uid),
        args={"to": MORNING},
        expected=EVENING,
        arrange=lambda: put(EVENING),
        effects=lambda: int("T080000Z" in calendar.get(f"{uid}.ics").text),
        disturb=lambda: put({**EVENING, "location": "Gate 40"}),
        unreachable={"url": "http://127.0.0.1:9/"},
    )


@pytest.fixture
def http_trial(payments, payments_connection):
    card = {f"card[{name}]": value for name, value in CARD.items()}
    method = payments.post("/v1/payment_methods", data={"type": "card", **card}).json()["id"]
    form = {"amount": 500, "currency": "eur", "payment_method": method}
    intent = payments.post("/v1/payment_intents", data=form).json()
    target = Target("payment", intent["id"])

    def effects():
        seen = payments.get(f"/v1/payment_intents/{target.id}").json()
        return int(seen["status"] == "canceled")

    return Trial(
        connector=registry.get("http"),
        operation="cancel",
        settings=payments_connection.settings,
        credential=payments_connection.compensate_secret.open(),
        target=target,
        expected={"status": intent["status"], "amount": 500},
        arrange=lambda: None,
        effects=effects,
        unreachable={"base_url": "http://127.0.0.1:9"},
    )


@pytest.mark.parametrize("name", sorted(registry.BUILT_IN))
@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_a_connector_keeps_its_promises(request, name, promise):
    trial = request.getfixturevalue(f"{name}_trial")

    promise(trial)


def test_every_registered_connector_is_whole():
    assert registry.registry().faults == ()
    assert set(registry.BUILT_IN) <= set(registry.names())
